//! The order in which the devices of a pool were freed.

use std::collections::{BTreeMap, BTreeSet};

/// Who was freed when, so that a device which has just been freed is given out last: its last owner may not have let go of
/// it in every place yet.
///
/// The kubelet tells nobody that a device was freed. It is learnt from what it offers, and from what containers hold. A
/// device that containers share has one place, whatever the share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freed {
    held: BTreeSet<String>,
    order: BTreeMap<String, u64>,
    count: u64,
}

impl Freed {
    /// A container got these.
    pub fn take<'a>(&mut self, ids: impl IntoIterator<Item = &'a str>) {
        for id in ids.into_iter().map(device) {
            self.order.remove(id);
            self.held.insert(id.to_owned());
        }
    }

    /// Nobody holds these now; of the others it is not known.
    pub fn free<'a>(&mut self, ids: impl IntoIterator<Item = &'a str>) {
        // A free share does not say that the others are.
        let freed: Vec<&str> =
            ids.into_iter().filter(|&id| device(id) == id && self.held.contains(id)).collect();
        self.release(freed.into_iter().map(str::to_owned).collect());
    }

    /// Containers hold exactly these now, as podresources or the checkpoint tells.
    pub fn hold(&mut self, held: &BTreeSet<String>) {
        let held: BTreeSet<String> = held.iter().map(|id| device(id).to_owned()).collect();
        let freed = self.held.difference(&held).cloned().collect();
        self.release(freed);
        self.take(held.iter().map(String::as_str));
    }

    /// What is freed at one time has one place in the order.
    fn release(&mut self, ids: Vec<String>) {
        if ids.is_empty() {
            return;
        }
        self.count += 1;
        for id in ids {
            self.held.remove(&id);
            self.order.insert(id, self.count);
        }
    }

    /// The place of a device: the greater, the later it was freed; 0 for one that nobody was seen to have.
    pub fn place(&self, id: &str) -> u64 {
        self.order.get(device(id)).copied().unwrap_or_default()
    }
}

/// The device of a share, `<id>::<k>`.
fn device(id: &str) -> &str {
    id.split_once("::").map_or(id, |(id, _)| id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    #[test]
    fn what_was_freed_later_has_a_greater_place_and_what_is_held_has_none() {
        let mut freed = Freed::default();
        freed.hold(&set(&["a", "b", "c"]));
        freed.hold(&set(&["a", "c"]));
        freed.hold(&set(&["c"]));
        assert!(freed.place("d") == 0 && 0 < freed.place("b") && freed.place("b") < freed.place("a"));
        freed.take(["b"]);
        assert_eq!(freed.place("b"), 0);
        freed.free(["b", "c"]);
        assert!(freed.place("a") < freed.place("b") && freed.place("b") == freed.place("c"));
    }

    #[test]
    fn a_shared_device_is_free_when_nobody_holds_a_share_of_it() {
        let mut freed = Freed::default();
        freed.take(["a::0", "b::0"]);
        freed.free(["a::1"]);
        assert_eq!(freed.place("a::1"), 0);
        freed.hold(&set(&["b"]));
        assert!(freed.place("a::0") > 0 && freed.place("a::0") == freed.place("a::1"));
        assert_eq!(freed.place("b::1"), 0);
    }

    #[test]
    fn what_is_offered_twice_keeps_its_place() {
        let mut freed = Freed::default();
        freed.take(["a", "b"]);
        freed.free(["a"]);
        freed.free(["a", "b", "z"]);
        assert!(freed.place("a") < freed.place("b"));
        assert_eq!(freed.place("z"), 0);
    }

    proptest! {
        /// Against a plain list of the sets that were held.
        #[test]
        fn the_order_is_that_of_the_last_time_each_was_held(
            held in prop::collection::vec(prop::collection::btree_set("[a-e]", 0..4), 1..12)
        ) {
            let mut freed = Freed::default();
            for held in &held {
                freed.hold(held);
            }
            let last = |id: &str| held.iter().rposition(|held| held.contains(id));
            let now = held.last().unwrap();
            for a in ["a", "b", "c", "d", "e"] {
                for b in ["a", "b", "c", "d", "e"] {
                    let is_free = |id: &str| !now.contains(id);
                    if is_free(a) && is_free(b) {
                        prop_assert_eq!(freed.place(a).cmp(&freed.place(b)), last(a).cmp(&last(b)), "{} {}", a, b);
                    }
                }
            }
        }
    }
}
