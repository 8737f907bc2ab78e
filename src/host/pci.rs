//! PCI functions in sysfs
//! (<https://github.com/torvalds/linux/blob/master/Documentation/ABI/testing/sysfs-bus-pci>).

use std::collections::HashMap;
use std::io;
use std::str::FromStr;

use super::HostRoot;
use super::devlink::Devlink;
use super::net;
use super::scan::PCI_DEVICES;
use super::wanted::WantedNetdevs;
use crate::model::{HexId, Netdev, Note, PciAddress, PhysicalFunction, device_name};

/// The directory of a function.
pub(super) fn directory(address: PciAddress) -> String {
    format!("{PCI_DEVICES}/{address}")
}

/// An attribute that every function has.
pub(super) fn number<T: FromStr<Err: ToString>>(
    host: &HostRoot,
    directory: &str,
    name: &str,
) -> Result<T, Note> {
    let path = format!("{directory}/{name}");
    let text = host.read(&path).map_err(|error| error.to_string());
    match text.and_then(|text| text.parse().map_err(|error: T::Err| error.to_string())) {
        Ok(value) => Ok(value),
        Err(cause) => Err(Note { path, cause: format!("{cause}; the function is skipped") }),
    }
}

/// The bound driver. A missing link is a state, not an error.
pub(super) fn driver(host: &HostRoot, directory: &str, entries: &[String]) -> io::Result<Option<String>> {
    if !entries.iter().any(|entry| entry == "driver") {
        return Ok(None);
    }
    match host.link_name(&format!("{directory}/driver")) {
        Ok(driver) => Ok(Some(driver)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bound driver of a function whose entries are not at hand.
pub(super) fn driver_of(host: &HostRoot, address: PciAddress) -> io::Result<Option<String>> {
    let directory = directory(address);
    driver(host, &directory, &host.list(&directory)?)
}

/// Whether the PCI id list calls a function virtual, for guests, where no `physfn` tells.
pub(super) fn is_virtual_by_name(vendor: HexId, device: HexId) -> bool {
    device_name(vendor, device).is_some_and(|name| name.contains("Virtual Function"))
}

/// `virtfn7` is the link to the VF with index 7.
pub(super) fn virtfn_index(entry: &str) -> Option<u32> {
    entry.strip_prefix("virtfn")?.parse().ok()
}

/// The NUMA node of a function; -1 means that the firmware does not tell.
pub(super) fn numa_node(host: &HostRoot, directory: &str, entries: &[String]) -> Option<u32> {
    entries.iter().any(|entry| entry == "numa_node").then(|| read_numa_node(host, directory)).flatten()
}

pub(super) fn read_numa_node(host: &HostRoot, directory: &str) -> Option<u32> {
    host.read(&format!("{directory}/numa_node")).ok()?.parse().ok()
}

/// A PF, as its VFs see it.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) function: PhysicalFunction,
    indexes: HashMap<PciAddress, u32>,
    representors: Vec<Netdev>,
    /// It makes RDMA devices.
    pub(super) has_rdma: bool,
}

impl Parent {
    /// Reads names and `virtfn*` links in one pass; indices may be sparse.
    pub(super) fn read(
        host: &HostRoot,
        address: PciAddress,
        wanted: WantedNetdevs,
        (links, devlink): (&net::Links, &Devlink<'_>),
        note: &mut dyn FnMut(Note),
    ) -> Self {
        let directory = directory(address);
        let mut parent = Self {
            function: PhysicalFunction { address, names: Vec::new(), link_type: None },
            indexes: HashMap::new(),
            representors: Vec::new(),
            has_rdma: false,
        };
        let entries = match host.list(&directory) {
            Ok(entries) => entries,
            Err(error) => {
                note(Note { path: directory, cause: error.to_string() });
                return parent;
            }
        };
        for (entry, index) in entries.iter().filter_map(|entry| Some((entry, virtfn_index(entry)?))) {
            let path = format!("{directory}/{entry}");
            match host.link_name(&path) {
                Ok(target) => {
                    parent.indexes.extend(PciAddress::from_sysfs(&target).map(|vf| (vf, index)));
                }
                Err(error) => note(Note { path, cause: error.to_string() }),
            }
        }
        parent.has_rdma = entries.iter().any(|entry| entry == "infiniband");
        match net::of_function(host, &directory, &entries, wanted, links, || devlink.is_legacy(address)) {
            Ok(net::Netdevs { own, representors }) => {
                parent.function.link_type = own.iter().find_map(|netdev| netdev.link_type);
                let names = own
                    .into_iter()
                    .flat_map(|netdev| std::iter::once(netdev.name).chain(netdev.alternative_names));
                parent.function.names = names.collect();
                parent.representors = representors;
            }
            Err(error) => note(Note { path: format!("{directory}/net"), cause: error.to_string() }),
        }
        parent
    }

    pub(super) fn index_of(&self, vf: PciAddress) -> Option<u32> {
        self.indexes.get(&vf).copied()
    }

    /// The netdev that stands for a VF (`vf`) or SF (`sf`) of this PF.
    pub(super) fn representor(&self, kind: &str, index: Option<u32>) -> Option<String> {
        let index = index?;
        let is_it = |netdev: &&Netdev| {
            netdev.port_name.as_deref().is_some_and(|port| net::represents(port, kind, index))
        };
        self.representors.iter().find(is_it).map(|netdev| netdev.name.clone())
    }
}
