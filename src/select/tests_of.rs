//! The tests, in the order in which they are applied.

use std::fmt::Display;

use super::{Test, configured_vfs, devices_of_type, is_of_type, may_have_vfs, no_vfs, not_in_use, type_of};
use crate::config::{FunctionType, PfName, PoolConfig, RootDevice, Selector};
use crate::model::{Device, Function, IndexRanges, PciAddress};

/// The tests of one selector object of a pool, in the order of the contract: kind and exclusions, then the selectors,
/// then `exclude`. Without a selector object only the former apply.
pub fn tests<'a>(pool: &'a PoolConfig, selector: Option<&'a Selector>) -> Vec<Test<'a>> {
    let mut tests = List(Vec::new());
    tests.add(
        "deviceType",
        move |device| is_of_type(pool, selector, device),
        move |device| told(devices_of_type(pool), type_of(device)),
    );
    tests.add(
        "PF",
        move |device| may_have_vfs(pool, selector, device),
        move |device| told(no_vfs(pool), format!("{} VFs configured", configured_vfs(device))),
    );
    tests.add(
        "default route",
        move |device| not_in_use(pool, device),
        |device| {
            let route = device.default_route.as_ref().map(|route| format!("`{route}`"));
            let wanted = "none, for a device that carries the node's own traffic is never offered";
            told(wanted, route.unwrap_or_default())
        },
    );
    tests.add(
        "allowNoIommu",
        move |device| pool.allow_no_iommu || !device.lacks_iommu(),
        |_| told("an IOMMU, for the pool says false", "none behind it"),
    );
    if pool.replicas > 1 {
        tests.add(
            "replicas",
            |device| device.vfio.is_none(),
            |_| told("a device that containers can share", "one on VFIO, which has a single owner"),
        );
    }
    match selector {
        Some(selector) => selector_tests(selector, true, &mut tests),
        None => tests.bound(),
    }
    tests.0
}

struct List<'a>(Vec<Test<'a>>);

impl<'a> List<'a> {
    fn add(
        &mut self,
        key: &'static str,
        matches: impl Fn(&Device) -> bool + 'a,
        tell: impl Fn(&Device) -> (String, String) + 'a,
    ) {
        self.0.push(Test { key, matches: Box::new(matches), tell: Box::new(tell) });
    }

    /// A test that looks for one value of the device in a list; an empty list matches nothing.
    fn one_of<T: Display + PartialEq>(
        &mut self,
        key: &'static str,
        wanted: Option<&'a Vec<T>>,
        found: impl Fn(&Device) -> Option<T> + Copy + 'a,
    ) {
        let Some(wanted) = wanted else { return };
        self.add(
            key,
            move |device| found(device).is_some_and(|found| wanted.contains(&found)),
            move |device| {
                told(list(wanted), found(device).map_or_else(|| "none".to_owned(), |found| found.to_string()))
            },
        );
    }

    /// A function without a driver is offered only where a selector asks for the empty name.
    fn bound(&mut self) {
        self.add(
            "drivers",
            |device| device.driver.is_some(),
            |_| told("a bound driver (`\"\"` would ask for none)", "none bound"),
        );
    }
}

/// The top bit tells full from limited membership; the key is the rest.
fn is_same_key(one: u16, other: u16) -> bool {
    one | 0x8000 == other | 0x8000
}

fn selector_tests<'a>(selector: &'a Selector, whole: bool, tests: &mut List<'a>) {
    tests.one_of("vendors", selector.vendors.as_ref(), |device| Some(device.vendor));
    tests.one_of("devices", selector.devices.as_ref(), |device| Some(device.device));
    match &selector.drivers {
        Some(drivers) => {
            // The empty name stands for no bound driver.
            tests.add(
                "drivers",
                move |device| {
                    let found = device.driver.as_deref().unwrap_or_default();
                    drivers.iter().any(|driver| driver == found)
                },
                move |device| {
                    let found = device.driver.as_deref().unwrap_or("none bound");
                    let quoted = drivers.iter().map(|driver| if driver.is_empty() { "\"\"" } else { driver });
                    told(list(quoted), found)
                },
            );
        }
        None if whole => tests.bound(),
        None => {}
    }
    tests.one_of("pciAddresses", selector.pci_addresses.as_ref(), |device| Some(device.address));
    tests.one_of("acpiIndexes", selector.acpi_indexes.as_ref(), |device| device.acpi_index);
    tests.one_of("auxTypes", selector.aux_types.as_ref(), |device| match &device.function {
        Function::Sub { auxiliary_type, .. } => Some(auxiliary_type.clone()),
        _ => None,
    });
    let with_pf = selector.function_types.as_ref().is_some_and(|types| types.contains(&FunctionType::Pf));
    if let Some(names) = &selector.pf_names {
        tests.add(
            "pfNames",
            move |device| names.iter().any(|entry| pf_name_matches(entry, with_pf, device)),
            move |device| tell_pf_names(names, with_pf, device),
        );
    }
    if let Some(roots) = &selector.root_devices {
        tests.add(
            "rootDevices",
            move |device| roots.iter().any(|entry| root_device_matches(entry, with_pf, device)),
            move |device| tell_root_devices(roots, with_pf, device),
        );
    }
    if let Some(wanted) = &selector.link_types {
        tests.add(
            "linkTypes",
            move |device| device.link_types().any(|found| wanted.contains(&found)),
            move |device| {
                let found: Vec<String> = device.link_types().map(|found| found.to_string()).collect();
                told(list(wanted), if found.is_empty() { "none".to_owned() } else { found.join(", ") })
            },
        );
    }
    tests.one_of("ddpProfiles", selector.ddp_profiles.as_ref(), |device| {
        device.ddp_profile.as_deref().map(str::to_owned)
    });
    if let Some(keys) = &selector.p_keys {
        let found = |device: &Device| device.rdma.as_ref().and_then(|rdma| rdma.p_key);
        let hex = |key: u16| format!("{key:#06x}");
        tests.add(
            "pKeys",
            move |device| found(device).is_some_and(|found| keys.iter().any(|key| is_same_key(*key, found))),
            move |device| {
                told(
                    list(keys.iter().copied().map(hex)),
                    found(device).map_or_else(|| "none".to_owned(), hex),
                )
            },
        );
    }
    if selector.is_rdma {
        tests.add("isRdma", |device| device.rdma.is_some(), |_| told("an RDMA device", "none"));
    }
    if let Some(wanted) = selector.vdpa_type {
        let found = |device: &Device| device.vdpa.as_ref().and_then(|vdpa| vdpa.kind);
        tests.add(
            "vdpaType",
            move |device| found(device) == Some(wanted),
            move |device| {
                told(wanted, found(device).map_or_else(|| "none".to_owned(), |found| found.to_string()))
            },
        );
    }
    if let Some(classes) = &selector.classes {
        tests.add(
            "classes",
            move |device| classes.iter().any(|class| class.matches(device.class)),
            move |device| told(list(classes), device.class),
        );
    }
    tests.one_of("functionTypes", selector.function_types.as_ref(), |device| {
        Some(match device.function {
            Function::Physical { .. } => FunctionType::Pf,
            Function::Virtual { .. } | Function::Orphan => FunctionType::Vf,
            Function::Sub { .. } => FunctionType::Sf,
        })
    });
    if let Some(ranges) = &selector.vf_indexes {
        tests.add(
            "vfIndexes",
            move |device| {
                device.index().is_some_and(|index| ranges.iter().any(|range| range.contains(index)))
            },
            move |device| told(list(ranges), index_text(device)),
        );
    }
    if let Some(excluded) = &selector.exclude {
        let mut inner = List(Vec::new());
        selector_tests(excluded, false, &mut inner);
        let keys = list(inner.0.iter().map(|test| test.key));
        tests.add(
            "exclude",
            // Without a test it would exclude everything, which nobody means.
            move |device| inner.0.is_empty() || !inner.0.iter().all(|test| test.matches(device)),
            move |_| told("a device that it does not match", format!("a match of {keys}")),
        );
    }
}

/// A guest's VF has no PF either, but is none.
fn is_physical(device: &Device) -> bool {
    matches!(device.function, Function::Physical { .. })
}

/// The names by which a device is found through its PF: those of the PF, or its own where PFs are asked for.
fn pf_names(with_pf: bool, device: &Device) -> impl Iterator<Item = &str> {
    let own = device.netdevs.iter().filter(move |_| with_pf && is_physical(device));
    let of_pf = device.pf().into_iter().flat_map(|pf| &pf.names);
    let names = own.flat_map(|netdev| std::iter::once(&netdev.name).chain(&netdev.alternative_names));
    of_pf.chain(names).map(String::as_str)
}

fn pf_name_matches(entry: &PfName, with_pf: bool, device: &Device) -> bool {
    index_matches(entry.indexes.as_ref(), device)
        && pf_names(with_pf, device).any(|name| entry.name.matches(name))
}

fn tell_pf_names(wanted: &[PfName], with_pf: bool, device: &Device) -> (String, String) {
    let entries = wanted.iter().map(|entry| with_indexes(&entry.name, entry.indexes.as_ref()));
    let names: Vec<&str> = pf_names(with_pf, device).collect();
    let found = match (device.pf(), names.is_empty()) {
        (None, true) => {
            "no PF (it is neither VF nor SF; functionTypes with `pf` asks for PFs themselves)".to_owned()
        }
        (Some(pf), true) => format!("PF {}, which has no netdev here", pf.address),
        (_, false) => format!("{}{}", list(&names), index_suffix(device)),
    };
    told(list(entries), found)
}

fn root_of(with_pf: bool, device: &Device) -> Option<PciAddress> {
    match device.pf() {
        Some(pf) => Some(pf.address),
        None => (with_pf && is_physical(device)).then_some(device.address),
    }
}

fn root_device_matches(entry: &RootDevice, with_pf: bool, device: &Device) -> bool {
    Some(entry.address) == root_of(with_pf, device) && index_matches(entry.indexes.as_ref(), device)
}

fn tell_root_devices(wanted: &[RootDevice], with_pf: bool, device: &Device) -> (String, String) {
    let entries = wanted.iter().map(|entry| with_indexes(&entry.address, entry.indexes.as_ref()));
    let found = match root_of(with_pf, device) {
        Some(root) => format!("{root}{}", index_suffix(device)),
        None => "no PF (it is neither VF nor SF; functionTypes with `pf` asks for PFs themselves)".to_owned(),
    };
    told(list(entries), found)
}

/// A PF itself has no index, so an entry with indices leaves it out.
fn index_matches(indexes: Option<&IndexRanges>, device: &Device) -> bool {
    indexes.is_none_or(|ranges| device.index().is_some_and(|index| ranges.contains(index)))
}

fn with_indexes(name: &impl Display, indexes: Option<&IndexRanges>) -> String {
    indexes.map_or_else(|| name.to_string(), |ranges| format!("{name}#{ranges}"))
}

fn index_suffix(device: &Device) -> String {
    device.index().map_or_else(String::new, |index| format!("#{index}"))
}

fn index_text(device: &Device) -> String {
    device.index().map_or_else(|| "no VF index".to_owned(), |index| index.to_string())
}

fn told(wanted: impl ToString, found: impl ToString) -> (String, String) {
    (wanted.to_string(), found.to_string())
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match texts.is_empty() {
        true => "nothing (every entry is bad)".to_owned(),
        false => texts.join(", "),
    }
}
