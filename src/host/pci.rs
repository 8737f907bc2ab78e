//! PCI functions in sysfs
//! (<https://github.com/torvalds/linux/blob/master/Documentation/ABI/testing/sysfs-bus-pci>).

use std::collections::HashMap;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use super::HostRoot;
use super::devlink::Devlink;
use super::directory::Directory;
use super::net;
use super::scan::PCI_DEVICES;
use super::wanted::WantedNetdevs;
use crate::model::{HexId, LinkState, Netdev, Note, PciAddress, PhysicalFunction, device_name};

/// The directory of a function.
pub(super) fn directory(address: PciAddress) -> String {
    format!("{PCI_DEVICES}/{address}")
}

/// An attribute that every function has.
pub(super) fn number<T: FromStr<Err: ToString>>(function: &Directory<'_>, name: &str) -> Result<T, Note> {
    let text = function.read(name).map_err(|error| error.to_string());
    match text.and_then(|text| text.parse().map_err(|error: T::Err| error.to_string())) {
        Ok(value) => Ok(value),
        Err(cause) => {
            Err(Note { path: function.path_of(name), cause: format!("{cause}; the function is skipped") })
        }
    }
}

/// The bound driver. A missing link is a state, not an error.
pub(super) fn driver(function: &Directory<'_>) -> io::Result<Option<String>> {
    if !function.has("driver") {
        return Ok(None);
    }
    match function.link_name("driver") {
        Ok(driver) => Ok(Some(driver)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
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
pub(super) fn numa_node(function: &Directory<'_>) -> Option<u32> {
    function.has("numa_node").then(|| function.read("numa_node").ok()?.parse().ok()).flatten()
}

/// A PF, as its VFs see it.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) function: Arc<PhysicalFunction>,
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
        let mut function = PhysicalFunction { address, names: Vec::new(), link_type: None, link: None };
        let (mut indexes, mut representors) = (HashMap::new(), Vec::new());
        let mut has_rdma = false;
        let path = directory(address);
        match host.enter(&path).and_then(|directory| {
            for (entry, index) in
                directory.entries().iter().filter_map(|entry| Some((entry, virtfn_index(entry)?)))
            {
                match directory.link_name(entry) {
                    Ok(target) => {
                        indexes.extend(PciAddress::from_sysfs(&target).map(|vf| (vf, index)));
                    }
                    Err(error) => note(Note { path: directory.path_of(entry), cause: error.to_string() }),
                }
            }
            has_rdma = directory.has("infiniband");
            net::of_function(&directory, wanted, links, || devlink.is_legacy(address))
        }) {
            Ok(net::Netdevs { own, representors: others, .. }) => {
                function.link = LinkState::of(&own);
                function.link_type = own.iter().find_map(|netdev| netdev.link_type);
                let names = own
                    .into_iter()
                    .flat_map(|netdev| std::iter::once(netdev.name).chain(netdev.alternative_names));
                function.names = names.collect();
                representors = others;
            }
            Err(error) => note(Note { path, cause: error.to_string() }),
        }
        Self { function: Arc::new(function), indexes, representors, has_rdma }
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
