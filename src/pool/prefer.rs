//! Which of the free devices a pod should get.

use std::collections::HashMap;

use super::groups::SharedGroups;
use super::{Freed, Member, Pool};
use crate::config::AllocationPolicy;

/// Exactly `size` of the `available` ids, every one of `must_include` among them. Deterministic: ties fall to the
/// smaller id.
///
/// Members of one IOMMU group are kept together where that can be. Beyond that the policies apply in their order: each
/// ranks the choices that the ones before it leave equal.
///
/// # Errors
/// Why there is no such choice.
pub fn prefer(
    pool: &Pool,
    freed: &Freed,
    available: &[String],
    must_include: &[String],
    size: usize,
) -> Result<Vec<String>, String> {
    let mut free: Vec<&str> = available.iter().map(String::as_str).collect();
    free.sort_unstable();
    free.dedup();
    let mut chosen: Vec<&str> = must_include.iter().map(String::as_str).collect();
    chosen.sort_unstable();
    chosen.dedup();
    if let Some(missing) = chosen.iter().find(|id| free.binary_search(id).is_err()) {
        return Err(format!("device {missing} must be included, but is not available"));
    }
    if chosen.len() > size || free.len() < size {
        return Err(format!("{size} of {} devices asked for, {} of them fixed", free.len(), chosen.len()));
    }
    free.retain(|id| chosen.binary_search(id).is_err());
    while chosen.len() < size {
        let missing = size - chosen.len();
        let groups = SharedGroups::new(pool, &chosen, &free);
        let counts = Counts::new(pool, &chosen, &free, missing);
        let rank = |id: &str| (groups.rank(id, missing), counts.rank(pool, freed, id));
        let best = free.iter().enumerate().min_by_key(|(_, id)| rank(id)).map(|(position, _)| position);
        let Some(position) = best else { break };
        chosen.push(free.remove(position));
    }
    chosen.sort_unstable();
    Ok(chosen.into_iter().map(str::to_owned).collect())
}

/// How many devices each group has, chosen and free.
struct Counts {
    numa: Groups,
    parents: Groups,
    cards: Groups,
    missing: usize,
}

#[derive(Default)]
struct Groups {
    chosen: HashMap<String, usize>,
    free: HashMap<String, usize>,
}

impl Groups {
    fn chosen(&self, group: &str) -> usize {
        self.chosen.get(group).copied().unwrap_or_default()
    }

    fn free(&self, group: &str) -> usize {
        self.free.get(group).copied().unwrap_or_default()
    }

    /// Smaller is better for keeping together: first the group that already holds most, then one that has room for all
    /// that is missing and no more than needed, else the one with most room.
    fn together(&self, group: &str, missing: usize) -> (i64, i64) {
        let free = self.free(group) as i64;
        let fit = if free >= missing as i64 { free - missing as i64 } else { i64::from(u32::MAX) - free };
        (-(self.chosen(group) as i64), fit)
    }

    /// Smaller is better for spreading.
    fn apart(&self, group: &str) -> i64 {
        self.chosen(group) as i64
    }
}

impl Counts {
    fn new(pool: &Pool, chosen: &[&str], free: &[&str], missing: usize) -> Self {
        let mut counts =
            Self { numa: Groups::default(), parents: Groups::default(), cards: Groups::default(), missing };
        for (ids, is_free) in [(chosen, false), (free, true)] {
            for id in ids {
                let Some(member) = pool.member(id) else { continue };
                let groups = [
                    (&mut counts.numa, numa(member)),
                    (&mut counts.parents, parent(member)),
                    (&mut counts.cards, card(member)),
                ];
                for (group, name) in groups {
                    let side = if is_free { &mut group.free } else { &mut group.chosen };
                    *side.entry(name).or_default() += 1;
                }
            }
        }
        counts
    }

    fn rank(&self, pool: &Pool, freed: &Freed, id: &str) -> Vec<i64> {
        let Some(member) = pool.member(id) else {
            return vec![i64::MAX];
        };
        let mut rank = Vec::new();
        for policy in &pool.config.allocation_policy {
            match policy {
                AllocationPolicy::Numa => {
                    let (chosen, fit) = self.numa.together(&numa(member), self.missing);
                    rank.extend([chosen, fit]);
                }
                AllocationPolicy::Packed => {
                    let (chosen, fit) = self.parents.together(&parent(member), self.missing);
                    rank.extend([chosen, fit]);
                }
                AllocationPolicy::Spread => {
                    rank.extend([self.parents.apart(&parent(member)), self.cards.apart(&card(member))]);
                }
                AllocationPolicy::Lru => rank.push(i64::try_from(freed.place(id)).unwrap_or(i64::MAX)),
            }
        }
        rank
    }
}

fn numa(member: &Member) -> String {
    member.device.numa_node.map_or_else(|| "none".to_owned(), |node| node.to_string())
}

fn parent(member: &Member) -> String {
    member.device.pf().map_or_else(|| member.device.id.to_string(), |pf| pf.address.to_string())
}

fn card(member: &Member) -> String {
    member.device.pf().map_or(member.device.address, |pf| pf.address).card().to_string()
}
