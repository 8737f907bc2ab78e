//! One pass over the machine.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::HostRoot;
use super::devlink::Devlink;
use super::directory::Directory;
use super::routes::Uplinks;
use super::wanted::{Wanted, WantedHandles};
use super::{auxiliary, net, pci, rdma, uacce, userspace, vdpa};
use crate::model::{Device, DeviceId, Function, HexId, Inventory, Note, PciAddress, PciClass};

/// Where the kernel lists PCI functions.
pub(super) const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// From this many functions on, another thread reads its share of them.
const SHARE: usize = 64;
/// More threads than this do not help: the kernel's own locks are in the way.
const MOST_THREADS: usize = 4;

/// Reads the devices that `wanted` asks for. Whatever cannot be read is a note, never an abort.
pub fn scan(host: &HostRoot, wanted: &Wanted) -> Inventory {
    let common = Common::new(host, wanted);
    let mut scan = Scan::new(&common);
    scan.notes.extend(common.notes.iter().cloned());
    let names = host.list(PCI_DEVICES).unwrap_or_else(|error| {
        scan.notes.push(note(PCI_DEVICES, &error));
        Vec::new()
    });
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let share = names.len().div_ceil(threads).max(SHARE);
    let (own, others) = names.split_at(share.min(names.len()));
    // Neighbours share a PF, so that each thread reads its own PFs.
    let mut devices = std::thread::scope(|scope| {
        let others: Vec<_> = others
            .chunks(share)
            .map(|names| {
                (names, std::thread::Builder::new().spawn_scoped(scope, || Scan::new(&common).all(names)))
            })
            .collect();
        let mut devices = scan.functions(own);
        for (names, thread) in others {
            match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok((found, notes))) => {
                    devices.extend(found);
                    scan.notes.extend(notes);
                }
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // No thread to be had.
                Err(_) => devices.extend(scan.functions(names)),
            }
        }
        devices
    });
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
    let path = directory(&known.id);
    let whole = |error: io::Error| note(&path, &error);
    let function = host.enter(&path).map_err(whole)?;
    let mut device = known.clone();
    device.driver = match known.function {
        Function::Sub { .. } => {
            host.enter(&pci::directory(known.address)).and_then(|above| pci::driver(&above))
        }
        _ => pci::driver(&function),
    }
    .map_err(whole)?;
    let wanted = WantedHandles {
        rdma: known.rdma.is_some(),
        vdpa: known.vdpa.is_some(),
        p_key: false,
        cdev: known.vfio.as_ref().is_some_and(|vfio| vfio.cdev.is_some()),
    };
    handles(&mut device, &function, wanted).map_err(whole)?;
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
    let wanted = Wanted::everything().of_any_class();
    Scan::new(&Common::new(host, &wanted)).function(address)?.ok_or_else(absent)
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
fn handles(device: &mut Device, function: &Directory<'_>, wanted: WantedHandles) -> io::Result<()> {
    let host = function.host();
    device.vfio = userspace::vfio(function, device.driver.as_deref(), wanted.cdev)?;
    device.uio = userspace::uio(function)?;
    device.uacce = uacce::read(function)?.map(Box::new);
    device.rdma = if wanted.rdma { rdma::read(function, wanted.p_key)?.map(Box::new) } else { None };
    device.vdpa = if wanted.vdpa { vdpa::read(function)?.map(Box::new) } else { None };
    device.absent_nodes = device
        .required_nodes()
        .into_iter()
        .filter(|path| host.shows_nodes_at(path) && host.node(path).is_none())
        .collect();
    Ok(())
}

/// What all threads of one pass know.
struct Common<'a> {
    host: &'a HostRoot,
    wanted: &'a Wanted,
    uplinks: Uplinks,
    links: net::Links,
    notes: Vec<Note>,
}

impl<'a> Common<'a> {
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
        Self { host, wanted, uplinks, links: net::Links::new(links), notes }
    }
}

/// What one thread has read.
struct Scan<'a> {
    common: &'a Common<'a>,
    devlink: Devlink<'a>,
    parents: HashMap<PciAddress, pci::Parent>,
    bridges: HashMap<String, Option<u32>>,
    notes: Vec<Note>,
}

impl<'a> Scan<'a> {
    fn new(common: &'a Common<'a>) -> Self {
        let devlink = Devlink::new(common.host);
        Self { common, devlink, parents: HashMap::new(), bridges: HashMap::new(), notes: Vec::new() }
    }

    fn all(mut self, names: &[String]) -> (Vec<Device>, Vec<Note>) {
        let devices = self.functions(names);
        self.notes.extend(self.devlink.into_notes());
        (devices, self.notes)
    }

    fn functions(&mut self, names: &[String]) -> Vec<Device> {
        let mut devices = Vec::new();
        for name in names {
            match PciAddress::from_sysfs(name) {
                Some(address) => match self.function(address) {
                    Ok(device) => devices.extend(device),
                    Err(note) => self.notes.push(note),
                },
                None => self.notes.push(Note {
                    path: format!("{PCI_DEVICES}/{name}"),
                    cause: "not the name of a PCI function; skipped".to_owned(),
                }),
            }
        }
        devices
    }

    /// Reads one function; `None` where its class is not wanted.
    fn function(&mut self, address: PciAddress) -> Result<Option<Device>, Note> {
        let Common { host, wanted, .. } = *self.common;
        let path = pci::directory(address);
        let whole = |error: io::Error| note(&path, &error);
        let function = host.enter(&path).map_err(whole)?;
        let class: PciClass = pci::number(&function, "class")?;
        let id = DeviceId::from(address);
        if !wanted.class(class) && !wanted.device(&id) {
            return Ok(None);
        }
        let ids: (HexId, HexId) = (pci::number(&function, "vendor")?, pci::number(&function, "device")?);
        let (kind, representor) = self.kind(&function, address, ids)?;
        let mut device = Device::bare(id, address, ids, class, kind);
        device.driver = pci::driver(&function).map_err(whole)?;
        device.numa_node = self.numa_node(&function, &device.function);
        device.acpi_index = match wanted.acpi_index() && function.has("acpi_index") {
            true => function.read("acpi_index").ok().and_then(|text| text.parse().ok()),
            false => None,
        };
        device.iommu_group = match wanted.iommu_groups() && function.has("iommu_group") {
            true => userspace::iommu_group(&function).map_err(whole)?,
            false => None,
        };
        device.representor = representor;
        self.finish(device, &function).map(Some)
    }

    /// Reads one subfunction; `None` where its parent is no network controller.
    fn subfunction(&mut self, id: &str, parent: PciAddress) -> Result<Option<Device>, Note> {
        let host = self.common.host;
        let above = pci::directory(parent);
        let above = host.enter(&above).map_err(|error| note(&above, &error))?;
        let class: PciClass = pci::number(&above, "class")?;
        if !class.is_network() {
            return Ok(None);
        }
        let path = auxiliary::directory(id);
        let whole = |error: io::Error| note(&path, &error);
        let subfunction = host.enter(&path).map_err(whole)?;
        let index = auxiliary::number(&subfunction);
        let pf = self.parent(parent);
        let representor = pf.representor("sf", index);
        let function = Function::Sub {
            pf: Arc::clone(&pf.function),
            index,
            auxiliary_type: auxiliary::SUBFUNCTION.to_owned(),
        };
        let ids = (pci::number(&above, "vendor")?, pci::number(&above, "device")?);
        let mut device = Device::bare(DeviceId::from(id), parent, ids, class, function);
        device.driver = pci::driver(&above).map_err(whole)?;
        device.numa_node = self.numa_node(&above, &device.function);
        device.representor = representor;
        self.finish(device, &subfunction).map(Some)
    }

    /// Adds netdevs and handles, which lie in the device's own directory whatever its kind.
    fn finish(&mut self, mut device: Device, function: &Directory<'_>) -> Result<Device, Note> {
        let Common { wanted, uplinks, links, .. } = self.common;
        let whole = |error: io::Error| note(function.path(), &error);
        // Only a PF has representors beside its own netdevs.
        let facts = wanted.netdevs(device.pf().is_some());
        let is_legacy = || self.devlink.is_legacy(device.address);
        let net::Netdevs { own, renamed, .. } =
            net::of_function(function, facts, links, is_legacy).map_err(whole)?;
        device.netdevs = own;
        let told_as = |name: &'_ String| {
            renamed.iter().find(|(new, _)| new == name).map(|(_, earlier)| earlier.clone())
        };
        let route = device.netdevs.iter().find_map(|netdev| match told_as(&netdev.name) {
            Some(earlier) => uplinks.of(&earlier),
            None => uplinks.of(&netdev.name),
        });
        device.default_route = route.cloned().map(Box::new);
        handles(&mut device, function, wanted.handles()).map_err(whole)?;
        if wanted.handles().rdma && device.class.is_network() {
            self.find_moved_rdma(&mut device, function);
        }
        if wanted.ddp() && device.class.is_network() {
            device.ddp_profile = self.devlink.profile(&device).map(String::into_boxed_str);
        }
        Ok(device)
    }

    /// Tells whether a function whose RDMA devices are not here has them in a pod. devlink knows; else the directory that
    /// they left behind tells, or the PF does, where the function's netdev is away and has left its directory behind.
    fn find_moved_rdma(&mut self, device: &mut Device, function: &Directory<'_>) {
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
        let netdev_is_away = device.netdevs.is_empty() && function.has("net");
        let left_behind = device.rdma.is_some() || netdev_is_away;
        device.rdma = enabled.unwrap_or(left_behind).then(Box::default);
    }

    /// What kind of function it is, and the netdev that represents it.
    fn kind(
        &mut self,
        function: &Directory<'_>,
        address: PciAddress,
        (vendor, device): (HexId, HexId),
    ) -> Result<(Function, Option<String>), Note> {
        if function.has("physfn") {
            let path = || function.path_of("physfn");
            let target = function.link_name("physfn").map_err(|error| note(&path(), &error))?;
            let Some(pf) = PciAddress::from_sysfs(&target) else {
                let cause = format!("points to `{target}`, which is no PCI function");
                return Err(Note { path: path(), cause });
            };
            let parent = self.parent(pf);
            let index = parent.index_of(address);
            let representor = parent.representor("vf", index);
            return Ok((Function::Virtual { pf: Arc::clone(&parent.function), index }, representor));
        }
        // A guest's VF has no `physfn`; its id is all that tells.
        let has_sriov = function.entries().iter().any(|entry| entry.starts_with("sriov_"));
        if !has_sriov && pci::is_virtual_by_name(vendor, device) {
            return Ok((Function::Orphan, None));
        }
        let vfs = function.entries().iter().filter(|entry| pci::virtfn_index(entry).is_some()).count();
        Ok((Function::Physical { vfs }, None))
    }

    /// What the VFs and SFs of a PF need to know of it, read once.
    fn parent(&mut self, pf: PciAddress) -> &pci::Parent {
        let Self { common: Common { host, wanted, links, .. }, devlink, notes, parents, .. } = self;
        parents.entry(pf).or_insert_with(|| {
            pci::Parent::read(host, pf, wanted.netdevs(false), (links, devlink), &mut |note| {
                notes.push(note);
            })
        })
    }

    /// The function's own node, else that of the nearest bridge above it, else that of its PF.
    fn numa_node(&mut self, function: &Directory<'_>, kind: &Function) -> Option<u32> {
        pci::numa_node(function)
            .or_else(|| {
                // A root port has a directory of its own in the real path: …/pci0000:16/0000:16:00.0/0000:17:00.0.
                let target = self.common.host.link(function.path()).ok()?;
                let bridges: Vec<&str> =
                    target.split('/').filter(|part| PciAddress::from_sysfs(part).is_some()).collect();
                let (_, above) = bridges.split_last()?;
                above.iter().rev().find_map(|bridge| self.bridge_numa_node(bridge))
            })
            .or_else(|| match kind {
                Function::Virtual { pf, .. } => self.bridge_numa_node(&pf.address.to_string()),
                Function::Physical { .. } | Function::Orphan | Function::Sub { .. } => None,
            })
    }

    fn bridge_numa_node(&mut self, name: &str) -> Option<u32> {
        if let Some(known) = self.bridges.get(name) {
            return *known;
        }
        let bridge = self.common.host.enter(&format!("{PCI_DEVICES}/{name}"));
        let node = bridge.ok().and_then(|bridge| pci::numa_node(&bridge));
        self.bridges.insert(name.to_owned(), node);
        node
    }
}
