//! What holds for every inventory and every config: assignment and preference.

use std::collections::BTreeSet;
use std::sync::Arc;

use pcidp::config::Config;
use pcidp::model::{Device, DeviceId, Function, Inventory, PciAddress, PhysicalFunction, Vfio};
use pcidp::pool::{Freed, Pools, assign, prefer};
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use crate::machine::config;

/// Few values, so that selectors hit.
const VENDORS: [&str; 3] = ["8086", "15b3", "19e5"];
const DRIVERS: [&str; 3] = ["iavf", "vfio-pci", "mlx5_core"];
const PFS: u8 = 4;

/// A VF with what selectors ask for.
#[derive(Debug, Clone)]
struct Vf {
    vendor: &'static str,
    driver: &'static str,
    pf: u8,
    index: u32,
    numa_node: Option<u32>,
}

impl Vf {
    fn device(&self) -> Device {
        // Two PFs a card.
        let pf: PciAddress = format!("0000:{:02x}:00.{}", 0x10 + self.pf / 2, self.pf % 2).parse().unwrap();
        let address: PciAddress =
            format!("0000:{:02x}:{:02x}.{}", 0x80 + self.pf, self.index / 8, self.index % 8).parse().unwrap();
        Device {
            id: DeviceId::from(address),
            address,
            vendor: self.vendor.parse().unwrap(),
            device: "1889".parse().unwrap(),
            class: "020000".parse().unwrap(),
            function: Function::Virtual {
                pf: Arc::new(PhysicalFunction {
                    address: pf,
                    names: vec![format!("pf{}", self.pf)],
                    link_type: None,
                    link: None,
                }),
                index: Some(self.index),
            },
            driver: Some(self.driver.to_owned()),
            netdevs: Vec::new(),
            numa_node: self.numa_node,
            iommu_group: None,
            acpi_index: None,
            vfio: None,
            uio: None,
            rdma: None,
            uacce: None,
            ddp_profile: None,
            vdpa: None,
            representor: None,
            default_route: None,
            absent_nodes: Vec::new(),
        }
    }
}

/// Distinct VFs in an arbitrary order.
fn vfs(most: usize) -> impl Strategy<Value = Vec<Vf>> {
    let vf = (
        prop::sample::select(&VENDORS[..]),
        prop::sample::select(&DRIVERS[..]),
        0..PFS,
        0u32..8,
        prop::option::of(0u32..3),
    )
        .prop_map(|(vendor, driver, pf, index, numa_node)| Vf { vendor, driver, pf, index, numa_node });
    prop::collection::vec(vf, 0..most).prop_map(|mut vfs| {
        let mut seen = BTreeSet::new();
        vfs.retain(|vf| seen.insert((vf.pf, vf.index)));
        vfs
    })
}

fn inventory(vfs: &[Vf]) -> Inventory {
    Inventory::new(vfs.iter().map(Vf::device).collect(), Vec::new())
}

/// A selector object, small enough to be judged by hand.
#[derive(Debug, Clone)]
struct Selector {
    vendors: Option<Vec<&'static str>>,
    drivers: Option<Vec<&'static str>>,
    pf: Option<(u8, Option<(u32, u32)>)>,
    excluded_index: Option<u32>,
}

impl Selector {
    fn matches(&self, vf: &Vf) -> bool {
        self.vendors.as_ref().is_none_or(|vendors| vendors.contains(&vf.vendor))
            && self.drivers.as_ref().is_none_or(|drivers| drivers.contains(&vf.driver))
            && self.pf.is_none_or(|(pf, range)| {
                pf == vf.pf && range.is_none_or(|(first, last)| (first..=last).contains(&vf.index))
            })
            && self.excluded_index != Some(vf.index)
    }

    fn text(&self) -> String {
        let mut keys = serde_json::Map::new();
        if let Some(vendors) = &self.vendors {
            keys.insert("vendors".to_owned(), vendors.clone().into());
        }
        if let Some(drivers) = &self.drivers {
            keys.insert("drivers".to_owned(), drivers.clone().into());
        }
        if let Some((pf, range)) = &self.pf {
            let range = range.map_or_else(String::new, |(first, last)| format!("#{first}-{last}"));
            keys.insert("pfNames".to_owned(), vec![format!("pf{pf}{range}")].into());
        }
        if let Some(index) = self.excluded_index {
            keys.insert("exclude".to_owned(), serde_json::json!({"vfIndexes": [index.to_string()]}));
        }
        serde_json::Value::Object(keys).to_string()
    }
}

fn selector() -> impl Strategy<Value = Selector> {
    let range = (0u32..8, 0u32..8).prop_map(|(a, b)| (a.min(b), a.max(b)));
    (
        prop::option::of(subsequence(&VENDORS[..], 1..=3)),
        prop::option::of(subsequence(&DRIVERS[..], 1..=3)),
        prop::option::of((0..PFS, prop::option::of(range))),
        prop::option::of(0u32..8),
    )
        .prop_map(|(vendors, drivers, pf, excluded_index)| Selector {
            vendors,
            drivers,
            pf,
            excluded_index,
        })
        // An object without a key is refused.
        .prop_filter("it asks for something", |selector| selector.text() != "{}")
}

/// Each pool with its selector objects.
fn pools() -> impl Strategy<Value = Vec<Vec<Selector>>> {
    prop::collection::vec(prop::collection::vec(selector(), 1..3), 1..5)
}

fn config_of(pools: &[Vec<Selector>]) -> Config {
    let pool = |(position, selectors): (usize, &Vec<Selector>)| {
        let objects: Vec<String> = selectors.iter().map(Selector::text).collect();
        format!(r#"{{"resourceName":"p{position}","selectors":[{}]}}"#, objects.join(","))
    };
    let list: Vec<String> = pools.iter().enumerate().map(pool).collect();
    config(&format!(r#"{{"resourceList":[{}]}}"#, list.join(",")))
}

/// The ids of each pool with the selector object that took them.
fn ids(pools: &Pools) -> Vec<Vec<(String, usize)>> {
    let members = |pool: &pcidp::pool::Pool| {
        pool.members.iter().map(|member| (member.device.id.to_string(), member.selector)).collect()
    };
    pools.pools.iter().map(members).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn each_device_is_in_the_first_pool_that_matches_it_and_in_no_other(vfs in vfs(24), pools in pools()) {
        let mut expected = vec![Vec::new(); pools.len()];
        let mut lost = vec![0; pools.len()];
        for vf in &vfs {
            let takers = pools.iter().enumerate().filter_map(|(pool, selectors)| {
                Some((pool, selectors.iter().position(|selector| selector.matches(vf))?))
            });
            for (rank, (pool, object)) in takers.enumerate() {
                match rank {
                    0 => expected[pool].push((vf.device().id.to_string(), object)),
                    _ => lost[pool] += 1,
                }
            }
        }
        for pool in &mut expected {
            pool.sort();
        }
        let found = assign(&config_of(&pools), &inventory(&vfs));
        prop_assert_eq!(ids(&found), expected);
        prop_assert_eq!(found.pools.iter().map(|pool| pool.lost.len()).collect::<Vec<_>>(), lost);
    }

    #[test]
    fn the_order_in_which_devices_are_found_does_not_matter(
        (vfs, shuffled) in vfs(24).prop_flat_map(|vfs| (Just(vfs.clone()), Just(vfs).prop_shuffle())),
        pools in pools(),
    ) {
        let config = config_of(&pools);
        prop_assert_eq!(ids(&assign(&config, &inventory(&vfs))), ids(&assign(&config, &inventory(&shuffled))));
    }

    #[test]
    fn a_later_pool_takes_nothing_from_an_earlier_one(vfs in vfs(24), pools in pools(), more in pools()) {
        let inventory = inventory(&vfs);
        let before = ids(&assign(&config_of(&pools), &inventory));
        let all: Vec<_> = pools.iter().chain(&more).cloned().collect();
        let after = ids(&assign(&config_of(&all), &inventory));
        prop_assert_eq!(&after[..before.len()], &before[..]);
    }
}

/// The pool of all devices, with a policy.
fn whole(vfs: &[Vf], policy: &str) -> pcidp::pool::Pool {
    let text = format!(
        r#"{{"resourceList":[{{"resourceName":"r","allocationPolicy":{policy},"selectors":{{"devices":["1889"]}}}}]}}"#
    );
    assign(&config(&text), &inventory(vfs)).pools.remove(0)
}

/// The same, on VFIO, each in one of a few IOMMU groups.
fn grouped(vfs: &[Vf], groups: &[u32], policy: &str) -> pcidp::pool::Pool {
    let mut pool = whole(vfs, policy);
    for (member, group) in pool.members.iter_mut().zip(groups) {
        let mut device = Device::clone(&member.device);
        device.vfio = Some(Vfio { group: *group, no_iommu: false, blocked_by: None, cdev: None });
        member.device = std::sync::Arc::new(device);
    }
    pool
}

/// A question that has an answer: what is available, what must be included, how many.
fn question() -> impl Strategy<Value = (Vec<Vf>, Vec<String>, Vec<String>, usize)> {
    vfs(12).prop_filter("there is a device", |vfs| !vfs.is_empty()).prop_flat_map(|vfs| {
        let all: Vec<String> = vfs.iter().map(|vf| vf.device().id.to_string()).collect();
        let available = subsequence(all.clone(), 1..=all.len()).prop_shuffle();
        (Just(vfs), available, any::<Index>(), any::<Index>()).prop_map(|(vfs, available, size, fixed)| {
            let size = 1 + size.index(available.len());
            let fixed = available[..fixed.index(size + 1)].to_vec();
            (vfs, available, fixed, size)
        })
    })
}

/// Every choice that answers a question.
fn choices(available: &[String], fixed: &[String], size: usize) -> Vec<Vec<String>> {
    let masks = 0u32..1 << available.len();
    let choice = |mask: u32| -> Vec<String> {
        let taken = available.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
        taken.map(|(_, id)| id.clone()).collect()
    };
    masks
        .filter(|mask| mask.count_ones() as usize == size)
        .map(choice)
        .filter(|choice| fixed.iter().all(|id| choice.contains(id)))
        .collect()
}

/// How many of a choice each group has.
fn load(pool: &pcidp::pool::Pool, choice: &[String], group: impl Fn(&Device) -> String) -> Vec<usize> {
    let mut groups = std::collections::BTreeMap::<String, usize>::new();
    for id in choice {
        *groups.entry(group(&pool.member(id).unwrap().device)).or_default() += 1;
    }
    groups.into_values().collect()
}

fn pf(device: &Device) -> String {
    device.pf().unwrap().address.to_string()
}

fn numa(device: &Device) -> String {
    format!("{:?}", device.numa_node)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_choice_has_the_size_keeps_what_is_fixed_and_is_always_the_same(
        (vfs, available, fixed, size) in question(),
        policy in prop::sample::select(vec![
            r#"["numa"]"#, r#"["packed"]"#, r#"["spread"]"#, r#"["numa","spread"]"#, r#"["packed","numa"]"#,
        ]),
    ) {
        let pool = whole(&vfs, policy);
        let chosen = prefer(&pool, &Freed::default(), &available, &fixed, size).unwrap();
        let set: BTreeSet<&String> = chosen.iter().collect();
        prop_assert_eq!((chosen.len(), set.len()), (size, size));
        prop_assert!(fixed.iter().all(|id| set.contains(id)));
        prop_assert!(chosen.iter().all(|id| available.contains(id)));
        let mut sorted = available.clone();
        sorted.sort();
        prop_assert_eq!(prefer(&pool, &Freed::default(), &sorted, &fixed, size).unwrap(), chosen);
        prop_assert!(prefer(&pool, &Freed::default(), &available, &fixed, available.len() + 1).is_err());
        if fixed.len() > 1 {
            prop_assert!(prefer(&pool, &Freed::default(), &available, &fixed, fixed.len() - 1).is_err());
        }
    }

    // TOP-01
    #[test]
    fn packed_takes_as_few_pfs_as_possible((vfs, available, fixed, size) in question()) {
        let pool = whole(&vfs, r#"["packed"]"#);
        let chosen = load(&pool, &prefer(&pool, &Freed::default(), &available, &fixed, size).unwrap(), pf).len();
        let best = choices(&available, &fixed, size).iter().map(|choice| load(&pool, choice, pf).len()).min();
        prop_assert_eq!(Some(chosen), best);
    }

    #[test]
    fn numa_takes_as_few_nodes_as_possible((vfs, available, fixed, size) in question()) {
        let pool = whole(&vfs, r#"["numa"]"#);
        let chosen = load(&pool, &prefer(&pool, &Freed::default(), &available, &fixed, size).unwrap(), numa).len();
        let best = choices(&available, &fixed, size).iter().map(|choice| load(&pool, choice, numa).len()).min();
        prop_assert_eq!(Some(chosen), best);
    }

    // TOP-02
    #[test]
    fn spread_takes_as_many_pfs_as_possible_and_as_evenly((vfs, available, fixed, size) in question()) {
        let pool = whole(&vfs, r#"["spread"]"#);
        let evenness = |choice: &[String]| {
            let load = load(&pool, choice, pf);
            (std::cmp::Reverse(load.len()), load.iter().max().copied())
        };
        let chosen = evenness(&prefer(&pool, &Freed::default(), &available, &fixed, size).unwrap());
        let best = choices(&available, &fixed, size).iter().map(|choice| evenness(choice)).min();
        prop_assert_eq!(Some(chosen), best);
    }

    // ALC-14
    #[test]
    fn lru_takes_those_that_were_free_for_the_longest(
        (vfs, available, fixed, size) in question(),
        held in prop::collection::vec(prop::collection::vec(any::<Index>(), 0..4), 0..6),
    ) {
        let pool = whole(&vfs, r#"["lru"]"#);
        let mut freed = Freed::default();
        for held in held {
            freed.hold(&held.iter().map(|index| index.get(&available).clone()).collect());
        }
        freed.hold(&BTreeSet::new());
        let chosen = prefer(&pool, &freed, &available, &fixed, size).unwrap();
        let places = |choice: &[String]| -> Vec<u64> {
            let mut places: Vec<u64> = choice.iter().map(|id| freed.place(id)).collect();
            places.sort_unstable();
            places
        };
        let best = choices(&available, &fixed, size).iter().map(|choice| places(choice)).min();
        prop_assert_eq!(Some(places(&chosen)), best);
    }

    #[test]
    fn no_group_is_broken_where_that_can_be_avoided(
        (vfs, available, fixed, size) in question(),
        groups in prop::collection::vec(0u32..6, 12),
        policy in prop::sample::select(vec![r#"["packed"]"#, r#"["spread"]"#, r#"["lru"]"#]),
    ) {
        let pool = grouped(&vfs, &groups, policy);
        let group = |id: &String| pool.member(id).unwrap().device.shareable_group();
        let is_broken = |choice: &[String]| {
            let mut others = pool.members.iter().map(|member| member.device.id.to_string());
            others.any(|id| !choice.contains(&id) && choice.iter().any(|one| group(one) == group(&id)))
        };
        let chosen = prefer(&pool, &Freed::default(), &available, &fixed, size).unwrap();
        let avoidable = choices(&available, &fixed, size).iter().any(|choice| !is_broken(choice));
        prop_assert!(!avoidable || !is_broken(&chosen), "{:?}", chosen);
    }
}
