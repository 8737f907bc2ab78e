//! The tests, in the order in which they are applied.

use std::fmt::Display;

use super::{Miss, Test, can_be_shared, has_iommu, is_of_type, may_have_vfs, not_in_use};
use crate::config::{FunctionType, PfName, PoolConfig, RootDevice, Selector};
use crate::model::{Device, Function, IndexRanges};

/// The tests of one selector object of a pool, in the order of the contract: kind and exclusions, then the selectors,
/// then `exclude`. Without a selector object only the former apply.
pub fn tests<'a>(pool: &'a PoolConfig, selector: Option<&'a Selector>) -> Vec<Test<'a>> {
    let mut tests = List(Vec::new());
    tests.add("deviceType", move |device| is_of_type(pool, selector, device));
    tests.add("PF", move |device| may_have_vfs(pool, selector, device));
    tests.add("default route", move |device| not_in_use(pool, device));
    tests.add("allowNoIommu", move |device| has_iommu(pool, device));
    if pool.replicas > 1 {
        tests.add("replicas", can_be_shared);
    }
    match selector {
        Some(selector) => selector_tests(selector, true, &mut tests),
        None => tests.add("drivers", bound),
    }
    tests.0
}

struct List<'a>(Vec<Test<'a>>);

impl<'a> List<'a> {
    fn add(&mut self, key: &'static str, check: impl Fn(&Device) -> Result<(), Miss> + 'a) {
        self.0.push(Test { key, check: Box::new(check) });
    }

    /// A test that looks for one value.
    fn exactly<T: Display + PartialEq + Copy + 'a>(
        &mut self,
        key: &'static str,
        wanted: Option<T>,
        found: impl Fn(&Device) -> Option<T> + 'a,
    ) {
        let Some(wanted) = wanted else { return };
        self.add(key, move |device| match found(device) {
            Some(found) if found == wanted => Ok(()),
            found => {
                Err(miss(key, wanted, found.map_or_else(|| "none".to_owned(), |found| found.to_string())))
            }
        });
    }

    /// A test that looks for one value of the device in a list; an empty list matches nothing.
    fn one_of<T: Display + PartialEq>(
        &mut self,
        key: &'static str,
        wanted: Option<&'a Vec<T>>,
        found: impl Fn(&Device) -> Option<T> + 'a,
    ) {
        let Some(wanted) = wanted else { return };
        self.add(key, move |device| {
            let found = found(device);
            if found.as_ref().is_some_and(|found| wanted.contains(found)) {
                return Ok(());
            }
            Err(miss(key, list(wanted), found.map_or_else(|| "none".to_owned(), |found| found.to_string())))
        });
    }
}

fn selector_tests<'a>(selector: &'a Selector, whole: bool, tests: &mut List<'a>) {
    tests.one_of("vendors", selector.vendors.as_ref(), |device| Some(device.vendor));
    tests.one_of("devices", selector.devices.as_ref(), |device| Some(device.device));
    match &selector.drivers {
        Some(drivers) => tests.add("drivers", move |device| {
            // The empty name stands for no bound driver.
            let found = device.driver.as_deref().unwrap_or_default();
            if drivers.iter().any(|driver| driver == found) {
                return Ok(());
            }
            let quoted = drivers.iter().map(|driver| if driver.is_empty() { "\"\"" } else { driver });
            Err(miss("drivers", list(quoted), if found.is_empty() { "none bound" } else { found }))
        }),
        None if whole => tests.add("drivers", bound),
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
        tests.add("pfNames", move |device| pf_name(names, with_pf, device));
    }
    if let Some(roots) = &selector.root_devices {
        tests.add("rootDevices", move |device| root_device(roots, with_pf, device));
    }
    tests.one_of("linkTypes", selector.link_types.as_ref(), Device::link_type);
    if let Some(keys) = &selector.p_keys {
        // The top bit tells full from limited membership; the key is the rest.
        const MEMBERSHIP: u16 = 0x8000;
        tests.add("pKeys", move |device| {
            let found = device.rdma.as_ref().and_then(|rdma| rdma.p_key);
            if found.is_some_and(|found| keys.iter().any(|key| key | MEMBERSHIP == found | MEMBERSHIP)) {
                return Ok(());
            }
            let hex = |key: &u16| format!("{key:#06x}");
            Err(miss(
                "pKeys",
                list(keys.iter().map(hex)),
                found.as_ref().map_or_else(|| "none".to_owned(), hex),
            ))
        });
    }
    if selector.is_rdma {
        tests.add("isRdma", |device| match &device.rdma {
            Some(_) => Ok(()),
            None => Err(miss("isRdma", "an RDMA device", "none")),
        });
    }
    tests.exactly("vdpaType", selector.vdpa_type, |device| device.vdpa.as_ref().and_then(|vdpa| vdpa.kind));
    if let Some(classes) = &selector.classes {
        tests.add("classes", move |device| match classes.iter().any(|class| class.matches(device.class)) {
            true => Ok(()),
            false => Err(miss("classes", list(classes), device.class)),
        });
    }
    if let Some(types) = &selector.function_types {
        tests.add("functionTypes", move |device| {
            let found = match device.function {
                Function::Physical { .. } => FunctionType::Pf,
                Function::Virtual { .. } | Function::Orphan => FunctionType::Vf,
                Function::Sub { .. } => FunctionType::Sf,
            };
            match types.contains(&found) {
                true => Ok(()),
                false => Err(miss("functionTypes", list(types), found)),
            }
        });
    }
    if let Some(ranges) = &selector.vf_indexes {
        tests.add("vfIndexes", move |device| {
            if device.index().is_some_and(|index| ranges.iter().any(|range| range.contains(index))) {
                return Ok(());
            }
            Err(miss("vfIndexes", list(ranges), index_text(device)))
        });
    }
    if let Some(excluded) = &selector.exclude {
        let mut inner = List(Vec::new());
        selector_tests(excluded, false, &mut inner);
        tests.add("exclude", move |device| {
            // Without a test it would exclude everything, which nobody means.
            if inner.0.is_empty() || inner.0.iter().any(|test| test.ask(device).is_err()) {
                return Ok(());
            }
            let keys = inner.0.iter().map(|test| test.key);
            Err(miss("exclude", "a device that it does not match", format!("a match of {}", list(keys))))
        });
    }
}

/// A function without a driver is offered only where a selector asks for the empty name.
fn bound(device: &Device) -> Result<(), Miss> {
    match device.driver {
        Some(_) => Ok(()),
        None => Err(miss("drivers", "a bound driver (`\"\"` would ask for none)", "none bound")),
    }
}

/// Whether a device stands for itself where a PF is named: it is one, and PFs are asked for.
fn is_own_pf(with_pf: bool, device: &Device) -> bool {
    with_pf && matches!(device.function, Function::Physical { .. })
}

fn pf_name(wanted: &[PfName], with_pf: bool, device: &Device) -> Result<(), Miss> {
    let itself = is_own_pf(with_pf, device);
    let names: Vec<&str> = match device.pf() {
        Some(pf) => pf.names.iter().map(String::as_str).collect(),
        None if itself => device.netdev_names().collect(),
        None => Vec::new(),
    };
    let matches = |entry: &PfName| {
        names.iter().any(|name| entry.name.matches(name))
            && index_matches(entry.indexes.as_ref(), itself, device)
    };
    if wanted.iter().any(matches) {
        return Ok(());
    }
    let entries = wanted.iter().map(|entry| with_indexes(&entry.name, entry.indexes.as_ref()));
    let found = match (device.pf(), names.is_empty()) {
        (None, true) => {
            "no PF (it is neither VF nor SF; functionTypes with `pf` asks for PFs themselves)".to_owned()
        }
        (Some(pf), true) => format!("PF {}, which has no netdev here", pf.address),
        (_, false) => format!("{}{}", list(&names), index_suffix(device)),
    };
    Err(miss("pfNames", list(entries), found))
}

fn root_device(wanted: &[RootDevice], with_pf: bool, device: &Device) -> Result<(), Miss> {
    let itself = is_own_pf(with_pf, device);
    let root = match device.pf() {
        Some(pf) => Some(pf.address),
        None => itself.then_some(device.address),
    };
    let matches = |entry: &RootDevice| {
        Some(entry.address) == root && index_matches(entry.indexes.as_ref(), itself, device)
    };
    if wanted.iter().any(matches) {
        return Ok(());
    }
    let entries = wanted.iter().map(|entry| with_indexes(&entry.address, entry.indexes.as_ref()));
    let found = match root {
        Some(root) => format!("{root}{}", index_suffix(device)),
        None => "no PF (it is neither VF nor SF; functionTypes with `pf` asks for PFs themselves)".to_owned(),
    };
    Err(miss("rootDevices", list(entries), found))
}

/// A PF itself has no index, so an entry with indices leaves it out.
fn index_matches(indexes: Option<&IndexRanges>, itself: bool, device: &Device) -> bool {
    match indexes {
        None => true,
        Some(ranges) => !itself && device.index().is_some_and(|index| ranges.contains(index)),
    }
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

fn miss(key: &'static str, wanted: impl ToString, found: impl ToString) -> Miss {
    Miss { key, wanted: wanted.to_string(), found: found.to_string() }
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match texts.is_empty() {
        true => "nothing (every entry is bad)".to_owned(),
        false => texts.join(", "),
    }
}
