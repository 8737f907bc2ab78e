//! What is on offer in time and beside the pods: pure, with a clock of the test's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use pcidp::config::Config;
use pcidp::host::{Wanted, scan};
use pcidp::model::{Device, Function, Health, Inventory, LinkState};
use pcidp::pool::{GONE_SHOWN, Held, Offer, Pool};
use proptest::prelude::*;

use crate::machine::config;
use crate::node::host;

const SECOND: Duration = Duration::from_secs(1);

/// Two pools by index; the first settles for two seconds.
fn two() -> Config {
    config(
        r#"{"resourceList":[
        {"resourceName":"a","settle":"2s","selectors":{"pfNames":["ens1f0np0#0-1"]}},
        {"resourceName":"b","settle":"0s","selectors":{"pfNames":["ens1f0np0#2-3"]}}]}"#,
    )
}

/// The same devices, the other way round.
fn swapped() -> Config {
    config(
        r#"{"resourceList":[
        {"resourceName":"a","settle":"0s","selectors":{"pfNames":["ens1f0np0#2-3"]}},
        {"resourceName":"b","settle":"0s","selectors":{"pfNames":["ens1f0np0#0-1"]}}]}"#,
    )
}

const IDS: [&str; 4] = ["0000:17:01.0", "0000:17:01.1", "0000:17:01.2", "0000:17:01.3"];

/// VFs 0 to 3 of `ens1f0np0`.
fn devices() -> Vec<Device> {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    let all = DEVICES.get_or_init(|| {
        let inventory = scan(&host("two-socket"), &Wanted::of(&two()));
        inventory.devices().iter().map(|device| (**device).clone()).collect()
    });
    let ours = |device: &&Device| IDS.contains(&device.id.as_str());
    let devices: Vec<Device> = all.iter().filter(ours).cloned().collect();
    assert_eq!(devices.len(), 4);
    devices
}

fn inventory(devices: Vec<Device>) -> Inventory {
    Inventory::new(devices, Vec::new())
}

fn held(pairs: &[(&str, &str)]) -> Held {
    Held::Known(pairs.iter().map(|&(id, resource)| (id.to_owned(), resource.to_owned())).collect())
}

fn pool<'a>(offer: &'a Offer, name: &str) -> &'a Pool {
    offer.pools().pools.iter().find(|pool| pool.config.resource.name() == name).unwrap()
}

/// The ids of a pool, those of unhealthy devices with a `!`.
fn shown(offer: &Offer, name: &str) -> Vec<String> {
    let shown = |member: &pcidp::pool::Member| match member.health {
        Health::Healthy => member.device.id.to_string(),
        Health::Unhealthy(_) => format!("{}!", member.device.id),
    };
    pool(offer, name).members.iter().map(shown).collect()
}

fn reason(offer: &Offer, name: &str) -> String {
    let mut reasons = pool(offer, name).members.iter().filter_map(|member| match &member.health {
        Health::Healthy => None,
        Health::Unhealthy(reason) => Some(reason.clone()),
    });
    reasons.next().unwrap_or_default()
}

#[test]
fn what_is_there_at_the_start_is_offered_at_once_and_what_appears_once_it_is_still() {
    let mut offer = Offer::default();
    let mut some = devices();
    let late = some.remove(0);
    assert_eq!(offer.update(&two(), &inventory(some.clone()), &held(&[]), SECOND), None);
    assert_eq!(shown(&offer, "a"), [IDS[1]]);
    // It appears without a driver, and is bound a second later.
    let bare = Device { driver: None, ..late.clone() };
    let with = |device: &Device| inventory([some.clone(), vec![device.clone()]].concat());
    assert_eq!(offer.update(&two(), &with(&bare), &held(&[]), 10 * SECOND), None);
    assert_eq!(offer.update(&two(), &with(&late), &held(&[]), 11 * SECOND), Some(13 * SECOND));
    assert_eq!(shown(&offer, "a"), [IDS[1]]);
    assert_eq!(offer.update(&two(), &with(&late), &held(&[]), 13 * SECOND), None);
    assert_eq!(shown(&offer, "a"), [IDS[0], IDS[1]]);
}

#[test]
fn a_held_device_stays_with_its_resource_whatever_the_config_says() {
    let mut offer = Offer::default();
    let held_one = held(&[(IDS[0], "x.io/a")]);
    offer.update(&two(), &inventory(devices()), &held_one, SECOND);
    offer.update(&swapped(), &inventory(devices()), &held_one, 2 * SECOND);
    assert_eq!(shown(&offer, "a"), [IDS[0], IDS[2], IDS[3]]);
    assert_eq!(shown(&offer, "b"), [IDS[1]]);
    assert!(offer.depends_on_holders());
    // Once it is free, it goes where the config wants it.
    offer.update(&swapped(), &inventory(devices()), &held(&[]), 3 * SECOND);
    assert_eq!((shown(&offer, "a"), shown(&offer, "b")), (ids(&[2, 3]), ids(&[0, 1])));
    assert!(!offer.depends_on_holders());
}

fn ids(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|&number| IDS[number].to_owned()).collect()
}

#[test]
fn also_where_the_plugin_was_restarted_in_between() {
    let mut offer = Offer::default();
    offer.update(&swapped(), &inventory(devices()), &held(&[(IDS[0], "x.io/a")]), SECOND);
    assert_eq!((shown(&offer, "a"), shown(&offer, "b")), (ids(&[0, 2, 3]), ids(&[1])));
}

#[test]
fn what_is_not_known_to_be_free_counts_as_held() {
    let mut offer = Offer::default();
    offer.update(&two(), &inventory(devices()), &Held::Unknown, SECOND);
    offer.update(&swapped(), &inventory(devices()), &Held::Unknown, 2 * SECOND);
    assert_eq!((shown(&offer, "a"), shown(&offer, "b")), (ids(&[0, 1]), ids(&[2, 3])));
}

#[test]
fn a_held_device_that_was_given_another_driver_is_unhealthy_and_stays() {
    let drivers = config(
        r#"{"resourceList":[{"resourceName":"a","settle":"0s",
        "selectors":{"pfNames":["ens1f0np0#0-1"],"drivers":["iavf"]}}]}"#,
    );
    let mut offer = Offer::default();
    let held_one = held(&[(IDS[0], "x.io/a")]);
    let mut now = devices();
    for device in &mut now {
        device.driver = Some("iavf".to_owned());
        device.vfio = None;
    }
    offer.update(&drivers, &inventory(now.clone()), &held_one, SECOND);
    assert_eq!(shown(&offer, "a"), ids(&[0, 1]));
    now[0].driver = Some("vfio-pci".to_owned());
    now[1].driver = Some("vfio-pci".to_owned());
    offer.update(&drivers, &inventory(now), &held_one, 2 * SECOND);
    assert_eq!(shown(&offer, "a"), [format!("{}!", IDS[0])]);
    assert!(reason(&offer, "a").contains("vfio-pci"), "{}", reason(&offer, "a"));
}

#[test]
fn a_held_device_that_is_gone_is_unhealthy_first_and_a_free_one_goes_at_once() {
    let mut offer = Offer::default();
    let held_one = held(&[(IDS[0], "x.io/a")]);
    offer.update(&two(), &inventory(devices()), &held_one, SECOND);
    let rest = inventory(devices()[2..].to_vec());
    let until = offer.update(&two(), &rest, &held_one, 2 * SECOND);
    assert_eq!(shown(&offer, "a"), [format!("{}!", IDS[0])]);
    assert_eq!(until, Some(2 * SECOND + GONE_SHOWN));
    offer.update(&two(), &rest, &held_one, 2 * SECOND + GONE_SHOWN);
    assert!(shown(&offer, "a").is_empty());
}

#[test]
fn a_pool_waits_for_its_devices_and_keeps_them_from_later_pools() {
    let waiting = config(
        r#"{"resourceList":[
        {"resourceName":"a","settle":"0s","waitFor":{"devices":2,"timeout":"10s"},"selectors":{"pfNames":["ens1f0np0#0-1"]}},
        {"resourceName":"b","settle":"0s","selectors":{"pfNames":["ens1f0np0"]}}]}"#,
    );
    let mut offer = Offer::default();
    let one = inventory(vec![devices().remove(0)]);
    assert_eq!(offer.update(&waiting, &one, &held(&[]), SECOND), Some(11 * SECOND));
    assert_eq!(pool(&offer, "a").waits_for, Some(2));
    assert!(shown(&offer, "b").is_empty());
    let mut in_time = offer.clone();
    in_time.update(&waiting, &inventory(devices()), &held(&[]), 5 * SECOND);
    assert_eq!(pool(&in_time, "a").waits_for, None);
    // It does not wait again where it loses one.
    in_time.update(&waiting, &one, &held(&[]), 6 * SECOND);
    assert_eq!(pool(&in_time, "a").waits_for, None);
    offer.update(&waiting, &one, &held(&[]), 11 * SECOND);
    assert_eq!(pool(&offer, "a").waits_for, None);
}

/// The devices, with the link of their PF in a state.
fn with_link(link: Option<LinkState>) -> Inventory {
    let mut devices = devices();
    for device in &mut devices {
        if let Function::Virtual { pf, .. } = &mut device.function {
            let mut changed = (**pf).clone();
            changed.link = link;
            *pf = changed.into();
        }
    }
    inventory(devices)
}

const UP: Option<LinkState> = Some(LinkState { up: true, carrier: Some(true) });
const NO_CARRIER: Option<LinkState> = Some(LinkState { up: true, carrier: Some(false) });
const ADMIN_DOWN: Option<LinkState> = Some(LinkState { up: false, carrier: Some(false) });

fn link_pool(health: &str) -> Config {
    let text =
        r#"{"resourceList":[{"resourceName":"a","health":HEALTH,"selectors":{"pfNames":["ens1f0np0#0"]}}]}"#;
    config(&text.replace("HEALTH", health))
}

// HLT-01
#[test]
fn a_link_is_judged_with_patience_in_both_directions() {
    let config = link_pool(r#"{"link":"carrier","downAfter":"5s","upAfter":"1s"}"#);
    let mut offer = Offer::default();
    let mut is_healthy = |link, now: u32| {
        offer.update(&config, &with_link(link), &held(&[]), now * SECOND);
        shown(&offer, "a") == [IDS[0]]
    };
    assert!(is_healthy(UP, 1));
    // Making VFs takes the carrier away for half a second.
    assert!(is_healthy(NO_CARRIER, 2) && is_healthy(UP, 3) && is_healthy(NO_CARRIER, 4));
    assert!(is_healthy(NO_CARRIER, 8));
    assert!(!is_healthy(NO_CARRIER, 9));
    assert!(!is_healthy(UP, 10) && is_healthy(UP, 11));
}

#[test]
fn a_link_that_is_down_by_choice_or_not_to_be_seen_is_not_judged() {
    let mut offer = Offer::default();
    for link in [ADMIN_DOWN, None, Some(LinkState { up: true, carrier: None })] {
        offer.update(&link_pool("{}"), &with_link(link), &held(&[]), SECOND);
        assert_eq!(shown(&offer, "a"), [IDS[0]], "{link:?}");
    }
    let mut offer = Offer::default();
    offer.update(&link_pool(r#"{"link":"ignore"}"#), &with_link(NO_CARRIER), &held(&[]), SECOND);
    assert_eq!(shown(&offer, "a"), [IDS[0]]);
    let mut offer = Offer::default();
    offer.update(&link_pool(r#"{"link":"admin"}"#), &with_link(ADMIN_DOWN), &held(&[]), SECOND);
    assert_eq!(reason(&offer, "a"), "ens1f0np0 is administratively down");
}

#[test]
fn the_reason_names_the_interface() {
    let mut offer = Offer::default();
    offer.update(&link_pool("{}"), &with_link(NO_CARRIER), &held(&[]), SECOND);
    assert_eq!(reason(&offer, "a"), "ens1f0np0 has no carrier");
}

#[derive(Debug, Clone)]
enum Op {
    There(u8),
    Held(Vec<(usize, bool)>),
    Unknown,
    Swap,
    Wait(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0u8..16).prop_map(Op::There),
        3 => prop::collection::vec((0usize..4, any::<bool>()), 0..4).prop_map(Op::Held),
        1 => Just(Op::Unknown),
        1 => Just(Op::Swap),
        2 => (0u8..12).prop_map(Op::Wait),
    ]
}

proptest! {
    // DSC-01, RLD-01
    #[test]
    fn whatever_happens_no_device_is_in_two_pools_and_none_leaves_its_pod(ops in prop::collection::vec(op(), 1..40)) {
        let (mut offer, mut now, mut mask, mut is_swapped) = (Offer::default(), SECOND, 15, false);
        let mut holders = Held::Known(BTreeMap::new());
        for op in ops {
            match op {
                Op::There(devices) => mask = devices,
                Op::Held(pairs) => {
                    let resource = |in_a: bool| if in_a { "x.io/a" } else { "x.io/b" };
                    let pairs: Vec<_> = pairs.iter().map(|&(n, in_a)| (IDS[n], resource(in_a))).collect();
                    holders = held(&pairs);
                }
                Op::Unknown => holders = Held::Unknown,
                Op::Swap => is_swapped = !is_swapped,
                Op::Wait(seconds) => now += u32::from(seconds) * SECOND,
            }
            let config = if is_swapped { swapped() } else { two() };
            let there: Vec<Device> =
                devices().into_iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, d)| d).collect();
            let due = offer.update(&config, &inventory(there.clone()), &holders, now);
            prop_assert!(due.is_none_or(|due| due > now), "{due:?} is not later than {now:?}");
            let mut seen = BTreeSet::new();
            for pool in &offer.pools().pools {
                prop_assert!(pool.members.is_sorted_by(|a, b| a.device.id < b.device.id));
                for member in &pool.members {
                    prop_assert!(seen.insert(member.device.id.clone()), "{} is in two pools", member.device.id);
                }
            }
            if let Held::Known(held) = &holders {
                for device in &there {
                    let Some(resource) = held.get(device.id.as_str()) else { continue };
                    let owner = offer.pools().pools.iter().find(|pool| pool.of_device(device.id.as_str()).is_some());
                    prop_assert_eq!(owner.map(|pool| pool.config.resource.to_string()), Some(resource.clone()));
                }
            }
            // In the end, time alone brings everything that is free and there.
            let mut later = offer.clone();
            let mut at = now;
            for _ in 0..50 {
                let Some(due) = later.update(&config, &inventory(there.clone()), &Held::Known(BTreeMap::new()), at) else { break };
                at = due;
            }
            let offered: usize = later.pools().pools.iter().map(|pool| pool.members.len()).sum();
            prop_assert_eq!(offered, there.len());
        }
    }
}
