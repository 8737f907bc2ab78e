//! One pass over the machine.

use std::collections::HashMap;
use std::io;

use super::HostRoot;
use super::routes::Uplinks;
use super::wanted::Wanted;
use super::{net, pci, rdma, uacce, userspace};
use crate::model::{Device, DeviceId, Function, HexId, Inventory, Note, PciAddress, PciClass};

/// Where the kernel lists PCI functions.
pub(super) const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Reads the devices that `wanted` asks for. Whatever cannot be read is a note, never an abort.
pub fn scan(host: &HostRoot, wanted: &Wanted) -> Inventory {
    let mut scan = Scan::new(host, wanted);
    let names = host.list(PCI_DEVICES).unwrap_or_else(|error| {
        scan.note(PCI_DEVICES, error.to_string());
        Vec::new()
    });
    let mut devices = Vec::new();
    for name in names {
        let Some(address) = PciAddress::from_sysfs(&name) else {
            scan.note(&format!("{PCI_DEVICES}/{name}"), "not the name of a PCI function; skipped".to_owned());
            continue;
        };
        match scan.function(address) {
            Ok(device) => devices.extend(device),
            Err(note) => scan.notes.push(note),
        }
    }
    Inventory::new(devices, scan.notes)
}

/// Reads one device anew, with what may have changed since a scan: driver, group, node numbers.
///
/// # Errors
/// What could not be read; a device that is gone among it.
pub fn refresh(host: &HostRoot, known: &Device) -> Result<Device, Note> {
    let directory = pci::directory(known.address);
    let entries = host.list(&directory).map_err(|error| note(&directory, &error))?;
    let mut device = known.clone();
    device.driver = pci::driver(host, &directory, &entries).map_err(|error| note(&directory, &error))?;
    handles(host, &mut device, &directory, &entries, known.rdma.is_some())
        .map_err(|error| note(&directory, &error))?;
    Ok(device)
}

/// Whether a function is there.
pub fn exists(host: &HostRoot, address: PciAddress) -> bool {
    host.link(&pci::directory(address)).is_ok()
}

/// Reads everything about one function, whatever its class.
///
/// # Errors
/// What could not be read; that the function is not there among it.
pub fn find(host: &HostRoot, address: PciAddress) -> Result<Device, Note> {
    let absent = || Note { path: pci::directory(address), cause: "there is no such function".to_owned() };
    if !exists(host, address) {
        return Err(absent());
    }
    Scan::new(host, &Wanted::everything().of_any_class()).function(address)?.ok_or_else(absent)
}

fn note(path: &str, error: &io::Error) -> Note {
    Note { path: path.to_owned(), cause: error.to_string() }
}

/// Fills in what depends on the bound driver: the handles through which a container reaches the device.
fn handles(
    host: &HostRoot,
    device: &mut Device,
    directory: &str,
    entries: &[String],
    with_rdma: bool,
) -> io::Result<()> {
    device.vfio = userspace::vfio(host, directory, entries, device.driver.as_deref())?;
    device.uio = userspace::uio(host, directory, entries)?;
    device.uacce = uacce::read(host, directory, entries)?;
    device.rdma = if with_rdma { rdma::read(host, directory, entries)? } else { None };
    device.absent_nodes = device
        .required_nodes()
        .into_iter()
        .filter(|path| host.shows_nodes_at(path) && host.node(path).is_none())
        .collect();
    Ok(())
}

/// What is shared by all functions of one pass.
struct Scan<'a> {
    host: &'a HostRoot,
    wanted: &'a Wanted,
    uplinks: Uplinks,
    alternative_names: HashMap<String, Vec<String>>,
    parents: HashMap<PciAddress, pci::Parent>,
    bridges: HashMap<String, Option<u32>>,
    notes: Vec<Note>,
}

impl<'a> Scan<'a> {
    fn new(host: &'a HostRoot, wanted: &'a Wanted) -> Self {
        let mut notes = Vec::new();
        let links = host.netlink().links().unwrap_or_else(|error| {
            notes.push(note("netlink RTM_GETLINK", &error));
            Vec::new()
        });
        let routes = host.netlink().default_routes().unwrap_or_else(|error| {
            notes.push(Note {
                path: "netlink RTM_GETROUTE".to_owned(),
                cause: format!("{error}; a device that carries a default route cannot be told"),
            });
            Vec::new()
        });
        let uplinks = Uplinks::new(&links, &routes);
        notes.extend(uplinks.notes.iter().cloned());
        let named = links.into_iter().map(|link| (link.name, link.alternative_names));
        Self {
            host,
            wanted,
            uplinks,
            alternative_names: named.filter(|(_, names)| !names.is_empty()).collect(),
            parents: HashMap::new(),
            bridges: HashMap::new(),
            notes,
        }
    }

    fn note(&mut self, path: &str, cause: String) {
        self.notes.push(Note { path: path.to_owned(), cause });
    }

    /// Reads one function; `None` where its class is not wanted.
    fn function(&mut self, address: PciAddress) -> Result<Option<Device>, Note> {
        let host = self.host;
        let directory = pci::directory(address);
        let class: PciClass = pci::number(host, &directory, "class")?;
        if !self.wanted.class(class) {
            return Ok(None);
        }
        let vendor: HexId = pci::number(host, &directory, "vendor")?;
        let device_id: HexId = pci::number(host, &directory, "device")?;
        let whole = |error: io::Error| note(&directory, &error);
        let entries = host.list(&directory).map_err(whole)?;
        let driver = pci::driver(host, &directory, &entries).map_err(whole)?;
        let virtual_function = entries.iter().any(|entry| entry == "physfn");
        let mut netdevs = net::of_function(host, &directory, &entries, self.wanted.netdevs(virtual_function))
            .map_err(whole)?;
        net::add_alternative_names(&mut netdevs, &self.alternative_names);
        let default_route = netdevs.iter().find_map(|netdev| self.uplinks.of(netdev)).cloned();
        let function = self.kind(&directory, &entries, address, (vendor, device_id))?;
        let numa_node = self.numa_node(&directory, &entries, &function);
        let acpi_index = if self.wanted.acpi_index() && entries.iter().any(|entry| entry == "acpi_index") {
            host.read(&format!("{directory}/acpi_index")).ok().and_then(|text| text.parse().ok())
        } else {
            None
        };
        let iommu_group =
            match self.wanted.iommu_groups() && entries.iter().any(|entry| entry == "iommu_group") {
                true => userspace::iommu_group(host, &directory).map_err(whole)?,
                false => None,
            };
        let mut device = Device {
            id: DeviceId::from(address),
            address,
            vendor,
            device: device_id,
            class,
            function,
            driver,
            netdevs,
            numa_node,
            iommu_group,
            acpi_index,
            vfio: None,
            uio: None,
            rdma: None,
            uacce: None,
            default_route,
            absent_nodes: Vec::new(),
        };
        handles(host, &mut device, &directory, &entries, self.wanted.rdma()).map_err(whole)?;
        Ok(Some(device))
    }

    fn kind(
        &mut self,
        directory: &str,
        entries: &[String],
        address: PciAddress,
        ids: (HexId, HexId),
    ) -> Result<Function, Note> {
        if entries.iter().any(|entry| entry == "physfn") {
            let path = format!("{directory}/physfn");
            let target = self.host.link_name(&path).map_err(|error| note(&path, &error))?;
            let Some(pf) = PciAddress::from_sysfs(&target) else {
                return Err(Note { path, cause: format!("points to `{target}`, which is no PCI function") });
            };
            let parent = self.parent(pf);
            return Ok(Function::Virtual { pf: parent.function.clone(), index: parent.index_of(address) });
        }
        // A guest's VF has no `physfn`; its id is all that tells.
        let names = ids;
        if !entries.iter().any(|entry| entry.starts_with("sriov_"))
            && pci::is_virtual_by_name(names.0, names.1)
        {
            return Ok(Function::Orphan);
        }
        Ok(Function::Physical {
            vfs: entries.iter().filter(|entry| pci::virtfn_index(entry).is_some()).count(),
        })
    }

    /// What the VFs of a PF need to know of it, read once.
    fn parent(&mut self, pf: PciAddress) -> &pci::Parent {
        let Self { host, wanted, notes, alternative_names, parents, .. } = self;
        parents.entry(pf).or_insert_with(|| {
            pci::Parent::read(host, pf, wanted.netdevs(false), alternative_names, &mut |note| {
                notes.push(note);
            })
        })
    }

    /// The function's own node, else that of the nearest bridge above it, else that of its PF.
    fn numa_node(&mut self, directory: &str, entries: &[String], function: &Function) -> Option<u32> {
        let own = pci::numa_node(self.host, directory, entries);
        own.or_else(|| {
            // A root port has a directory of its own in the real path: …/pci0000:16/0000:16:00.0/0000:17:00.0.
            let target = self.host.link(directory).ok()?;
            let bridges: Vec<&str> =
                target.split('/').filter(|part| PciAddress::from_sysfs(part).is_some()).collect();
            let (_, above) = bridges.split_last()?;
            above.iter().rev().find_map(|bridge| self.bridge_numa_node(bridge))
        })
        .or_else(|| match function {
            Function::Virtual { pf, .. } => self.bridge_numa_node(&pf.address.to_string()),
            Function::Physical { .. } | Function::Orphan => None,
        })
    }

    fn bridge_numa_node(&mut self, name: &str) -> Option<u32> {
        if let Some(known) = self.bridges.get(name) {
            return *known;
        }
        let node = pci::read_numa_node(self.host, &format!("{PCI_DEVICES}/{name}"));
        self.bridges.insert(name.to_owned(), node);
        node
    }
}
