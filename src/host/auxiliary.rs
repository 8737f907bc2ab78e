//! Auxiliary devices: subfunctions
//! (<https://github.com/torvalds/linux/blob/master/Documentation/driver-api/auxiliary_bus.rst>).

use super::HostRoot;
use super::directory::Directory;
use crate::model::PciAddress;

const AUXILIARY_DEVICES: &str = "/sys/bus/auxiliary/devices";

/// The type in the name of a subfunction: `driver.sf.number`.
pub(super) const SUBFUNCTION: &str = "sf";

/// The directory of an auxiliary device.
pub(super) fn directory(name: &str) -> String {
    format!("{AUXILIARY_DEVICES}/{name}")
}

/// The names of all subfunctions, each with the nearest PCI function above it. A kernel without the bus has none.
pub(super) fn subfunctions(host: &HostRoot) -> Vec<(String, PciAddress)> {
    let names = host.list(AUXILIARY_DEVICES).unwrap_or_default();
    let named = names.into_iter().filter(|name| name.split('.').nth(1) == Some(SUBFUNCTION));
    named.filter_map(|name| Some((name.clone(), parent(&host.link(&directory(&name)).ok()?)?))).collect()
}

fn parent(target: &str) -> Option<PciAddress> {
    target.split('/').rev().find_map(PciAddress::from_sysfs)
}

/// The number that the user gave the subfunction; not the one in its name.
pub(super) fn number(subfunction: &Directory<'_>) -> Option<u32> {
    subfunction.read("sfnum").ok()?.parse().ok()
}
