//! One pass over the machine.

use std::collections::HashMap;
use std::io;

use super::HostRoot;
use super::devlink::Devlink;
use super::routes::Uplinks;
use super::wanted::{Wanted, WantedHandles};
use super::{auxiliary, net, pci, rdma, uacce, userspace, vdpa};
use crate::model::{Device, DeviceId, Function, HexId, Inventory, Note, PciAddress, PciClass, Rdma};

/// Where the kernel lists PCI functions.
pub(super) const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Reads the devices that `wanted` asks for. Whatever cannot be read is a note, never an abort.
pub fn scan(host: &HostRoot, wanted: &Wanted) -> Inventory {
    let mut scan = Scan::new(host, wanted);
    let names = host.list(PCI_DEVICES).unwrap_or_else(|error| {
        scan.notes.push(note(PCI_DEVICES, &error));
        Vec::new()
    });
    let mut devices = Vec::new();
    for name in names {
        match PciAddress::from_sysfs(&name) {
            Some(address) => match scan.function(address) {
                Ok(device) => devices.extend(device),
                Err(note) => scan.notes.push(note),
            },
            None => scan.notes.push(Note {
                path: format!("{PCI_DEVICES}/{name}"),
                cause: "not the name of a PCI function; skipped".to_owned(),
            }),
        }
    }
    if wanted.subfunctions() {
        for (id, parent) in auxiliary::subfunctions(host) {
            match scan.subfunction(&id, parent) {
                Ok(device) => devices.extend(device),
                Err(note) => scan.notes.push(note),
            }
        }
    }
    scan.notes.extend(scan.devlink.into_notes());
    Inventory::new(devices, scan.notes)
}

/// Reads one device anew, with what may have changed since a scan: driver, group, node numbers.
///
/// # Errors
/// What could not be read; a device that is gone among it.
pub fn refresh(host: &HostRoot, known: &Device) -> Result<Device, Note> {
    let directory = directory(&known.id);
    let entries = host.list(&directory).map_err(|error| note(&directory, &error))?;
    let mut device = known.clone();
    device.driver = match known.function {
        Function::Sub { .. } => pci::driver_of(host, known.address),
        _ => pci::driver(host, &directory, &entries),
    }
    .map_err(|error| note(&directory, &error))?;
    let wanted = WantedHandles {
        rdma: known.rdma.is_some(),
        vdpa: known.vdpa.is_some(),
        p_key: false,
        cdev: known.vfio.as_ref().is_some_and(|vfio| vfio.cdev.is_some()),
    };
    handles(host, &mut device, &directory, &entries, wanted).map_err(|error| note(&directory, &error))?;
    Ok(device)
}

/// Whether a device is there.
pub fn exists(host: &HostRoot, id: &DeviceId) -> bool {
    host.link(&directory(id)).is_ok()
}

/// Reads everything about one function, whatever its class.
///
/// # Errors
/// What could not be read; that the function is not there among it.
pub fn find(host: &HostRoot, address: PciAddress) -> Result<Device, Note> {
    let id = DeviceId::from(address);
    let absent = || Note { path: directory(&id), cause: "there is no such function".to_owned() };
    if !exists(host, &id) {
        return Err(absent());
    }
    Scan::new(host, &Wanted::everything().of_any_class()).function(address)?.ok_or_else(absent)
}

/// The entry of a device on its bus.
fn directory(id: &DeviceId) -> String {
    match PciAddress::from_sysfs(id.as_str()) {
        Some(address) => pci::directory(address),
        None => auxiliary::directory(id.as_str()),
    }
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
    wanted: WantedHandles,
) -> io::Result<()> {
    device.vfio = userspace::vfio(host, directory, entries, device.driver.as_deref(), wanted.cdev)?;
    device.uio = userspace::uio(host, directory, entries)?;
    device.uacce = uacce::read(host, directory, entries)?;
    device.rdma = if wanted.rdma { rdma::read(host, directory, entries, wanted.p_key)? } else { None };
    device.vdpa = if wanted.vdpa { vdpa::read(host, directory, entries)? } else { None };
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
    links: net::Links,
    devlink: Devlink<'a>,
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
        Self {
            host,
            wanted,
            uplinks,
            links: net::Links::new(links),
            devlink: Devlink::new(host),
            parents: HashMap::new(),
            bridges: HashMap::new(),
            notes,
        }
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
        let (function, representor) = self.kind(&directory, &entries, address, (vendor, device_id))?;
        let numa_node = self.numa_node(&directory, &entries, &function);
        let has = |name: &str| entries.iter().any(|entry| entry == name);
        let acpi_index = match self.wanted.acpi_index() && has("acpi_index") {
            true => host.read(&format!("{directory}/acpi_index")).ok().and_then(|text| text.parse().ok()),
            false => None,
        };
        let iommu_group = match self.wanted.iommu_groups() && has("iommu_group") {
            true => userspace::iommu_group(host, &directory).map_err(whole)?,
            false => None,
        };
        let mut device = Device::bare(DeviceId::from(address), address, (vendor, device_id), class, function);
        device.driver = driver;
        device.numa_node = numa_node;
        device.iommu_group = iommu_group;
        device.acpi_index = acpi_index;
        device.representor = representor;
        self.finish(device, &directory, &entries).map(Some)
    }

    /// Reads one subfunction; `None` where its parent is no network controller.
    fn subfunction(&mut self, id: &str, parent: PciAddress) -> Result<Option<Device>, Note> {
        let host = self.host;
        let above = pci::directory(parent);
        let class: PciClass = pci::number(host, &above, "class")?;
        if !class.is_network() {
            return Ok(None);
        }
        let directory = auxiliary::directory(id);
        let whole = |error: io::Error| note(&directory, &error);
        let entries = host.list(&directory).map_err(whole)?;
        let parent_entries = host.list(&above).map_err(whole)?;
        let index = auxiliary::number(host, &directory);
        let pf = self.parent(parent);
        let representor = pf.representor("sf", index);
        let function = Function::Sub {
            pf: pf.function.clone(),
            index,
            auxiliary_type: auxiliary::SUBFUNCTION.to_owned(),
        };
        let ids = (pci::number(host, &above, "vendor")?, pci::number(host, &above, "device")?);
        let numa_node = self.numa_node(&above, &parent_entries, &function);
        let mut device = Device::bare(DeviceId::from(id), parent, ids, class, function);
        device.driver = pci::driver(host, &above, &parent_entries).map_err(whole)?;
        device.numa_node = numa_node;
        device.representor = representor;
        self.finish(device, &directory, &entries).map(Some)
    }

    /// Adds netdevs and handles, which lie in the device's own directory whatever its kind.
    fn finish(&mut self, mut device: Device, directory: &str, entries: &[String]) -> Result<Device, Note> {
        let whole = |error: io::Error| note(directory, &error);
        // Only a PF has representors beside its own netdevs.
        let wanted = self.wanted.netdevs(device.pf().is_some());
        let is_legacy = || self.devlink.is_legacy(device.address);
        let netdevs = net::of_function(self.host, directory, entries, wanted, &self.links, is_legacy);
        device.netdevs = netdevs.map_err(whole)?.own;
        let told = device.netdevs.iter().map(|netdev| self.links.told_as(&netdev.name));
        device.default_route = told.filter_map(|name| self.uplinks.of(&name)).next().cloned();
        handles(self.host, &mut device, directory, entries, self.wanted.handles()).map_err(whole)?;
        if self.wanted.handles().rdma && device.class.is_network() {
            self.find_moved_rdma(&mut device, entries);
        }
        if self.wanted.ddp() && device.class.is_network() {
            device.ddp_profile = self.devlink.profile(&device);
        }
        Ok(device)
    }

    /// Tells whether a function whose RDMA devices are not here has them in a pod. devlink knows; else the directory that
    /// they left behind tells, or the PF does, where the function's netdev is away and has left its directory behind.
    fn find_moved_rdma(&mut self, device: &mut Device, entries: &[String]) {
        let is_here = device.rdma.as_ref().is_some_and(|rdma| !rdma.devices.is_empty());
        let has_userspace_driver = device.vfio.is_some() || device.uio.is_some();
        if is_here || device.driver.is_none() || has_userspace_driver {
            return;
        }
        let pf = device.pf().map(|pf| pf.address);
        let pf_has_rdma = pf.is_some_and(|pf| self.parent(pf).has_rdma);
        if device.rdma.is_none() && !pf_has_rdma {
            return;
        }
        let enabled = self.devlink.enables_rdma(&device.id);
        let netdev_is_away = device.netdevs.is_empty() && entries.iter().any(|entry| entry == "net");
        let left_behind = device.rdma.is_some() || netdev_is_away;
        device.rdma = enabled.unwrap_or(left_behind).then(Rdma::default);
    }

    /// What kind of function it is, and the netdev that represents it.
    fn kind(
        &mut self,
        directory: &str,
        entries: &[String],
        address: PciAddress,
        (vendor, device): (HexId, HexId),
    ) -> Result<(Function, Option<String>), Note> {
        if entries.iter().any(|entry| entry == "physfn") {
            let path = format!("{directory}/physfn");
            let target = self.host.link_name(&path).map_err(|error| note(&path, &error))?;
            let Some(pf) = PciAddress::from_sysfs(&target) else {
                return Err(Note { path, cause: format!("points to `{target}`, which is no PCI function") });
            };
            let parent = self.parent(pf);
            let index = parent.index_of(address);
            let representor = parent.representor("vf", index);
            return Ok((Function::Virtual { pf: parent.function.clone(), index }, representor));
        }
        // A guest's VF has no `physfn`; its id is all that tells.
        let has_sriov = entries.iter().any(|entry| entry.starts_with("sriov_"));
        if !has_sriov && pci::is_virtual_by_name(vendor, device) {
            return Ok((Function::Orphan, None));
        }
        let vfs = entries.iter().filter(|entry| pci::virtfn_index(entry).is_some()).count();
        Ok((Function::Physical { vfs }, None))
    }

    /// What the VFs and SFs of a PF need to know of it, read once.
    fn parent(&mut self, pf: PciAddress) -> &pci::Parent {
        let Self { host, wanted, notes, links, devlink, parents, .. } = self;
        parents.entry(pf).or_insert_with(|| {
            pci::Parent::read(host, pf, wanted.netdevs(false), (links, devlink), &mut |note| {
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
            Function::Physical { .. } | Function::Orphan | Function::Sub { .. } => None,
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
