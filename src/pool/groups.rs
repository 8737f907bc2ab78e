//! IOMMU groups that hold several devices of a pool: only one owner can open such a group, so that its devices are of use
//! together, or to one container alone.

use std::collections::{BTreeMap, HashMap};

use super::Pool;

/// The shared groups of a pool in the middle of a choice.
pub(super) struct SharedGroups {
    /// The group of each device that shares one.
    of: HashMap<String, u32>,
    groups: BTreeMap<u32, Group>,
    /// How many devices are left that are alone, or whose group is free as a whole, by the size of their group.
    whole: BTreeMap<usize, usize>,
}

#[derive(Default)]
struct Group {
    members: usize,
    chosen: usize,
    free: usize,
}

impl Group {
    fn is_untouched(&self) -> bool {
        self.free == self.members
    }
}

impl SharedGroups {
    pub(super) fn new(pool: &Pool, chosen: &[&str], free: &[&str]) -> Self {
        let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
        let mut of = HashMap::new();
        for member in &pool.members {
            let Some(group) = member.device.shareable_group() else { continue };
            groups.entry(group).or_default().members += 1;
            of.insert(member.device.id.to_string(), group);
        }
        groups.retain(|_, group| group.members > 1);
        of.retain(|_, group| groups.contains_key(group));
        let mut shared = Self { of, groups, whole: BTreeMap::new() };
        for id in chosen {
            if let Some(group) = shared.group_mut(id) {
                group.chosen += 1;
            }
        }
        let mut alone = 0;
        for id in free {
            match shared.group_mut(id) {
                Some(group) => group.free += 1,
                None => alone += 1,
            }
        }
        shared.whole.insert(1, alone);
        for group in shared.groups.values().filter(|group| group.is_untouched()) {
            *shared.whole.entry(group.members).or_default() += 1;
        }
        shared
    }

    fn group_mut(&mut self, id: &str) -> Option<&mut Group> {
        let group = self.of.get(id)?;
        self.groups.get_mut(group)
    }

    /// Smaller is better: a device of a group that is begun; one with which the rest can be chosen without breaking a
    /// group; one that breaks a group; one whose group somebody else may have open.
    pub(super) fn rank(&self, id: &str, missing: usize) -> i64 {
        if self.groups.is_empty() {
            return 0;
        }
        let group = self.of.get(id).and_then(|group| self.groups.get(group));
        let size = match group {
            Some(group) if group.chosen > 0 => return 0,
            Some(group) if !group.is_untouched() => return 3,
            Some(group) => group.members,
            None => 1,
        };
        match missing.checked_sub(size).is_some_and(|rest| self.can_fill(rest, size)) {
            true => 1,
            false => 2,
        }
    }

    /// Whether whole groups, less one of size `taken`, can make up `wanted` devices.
    fn can_fill(&self, wanted: usize, taken: usize) -> bool {
        let mut reachable = vec![false; wanted + 1];
        if let Some(none) = reachable.first_mut() {
            *none = true;
        }
        for (&size, &count) in &self.whole {
            for _ in 0..count.saturating_sub(usize::from(size == taken)).min(wanted / size.max(1)) {
                for sum in (size..=wanted).rev() {
                    let reached = reachable.get(sum - size).copied().unwrap_or_default();
                    if let (true, Some(place)) = (reached, reachable.get_mut(sum)) {
                        *place = true;
                    }
                }
            }
        }
        reachable.last().copied().unwrap_or_default()
    }
}
