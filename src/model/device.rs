//! A device of a host, as one scan saw it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{HexId, PciAddress, PciClass};

/// The id under which the kubelet knows a device: a PCI address, or an auxiliary name such as `mlx5_core.sf.4`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(Box<str>);

impl DeviceId {
    /// Reads an id as the kernel writes it: a PCI address, or `driver.type.number`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_auxiliary = || {
            let mut parts = text.rsplitn(3, '.');
            let number = parts.next().is_some_and(|number| number.parse::<u32>().is_ok());
            // A hyphen would be one between the name of a resource and an id.
            let mut word =
                || parts.next().is_some_and(|part| !part.is_empty() && !part.contains(['-', ':', '/']));
            number && word() && word()
        };
        (PciAddress::from_sysfs(text).is_some() || is_auxiliary()).then(|| Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<PciAddress> for DeviceId {
    fn from(address: PciAddress) -> Self {
        Self(address.to_string().into())
    }
}

impl From<&str> for DeviceId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What kind of function a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// A physical function, or a plain function without SR-IOV.
    Physical {
        /// How many VFs it has now.
        vfs: usize,
    },
    /// A virtual function whose PF is known.
    Virtual {
        /// Its PF.
        pf: Arc<PhysicalFunction>,
        /// Its index among the `virtfn*` links of the PF; `None` where the PF does not list it.
        index: Option<u32>,
    },
    /// A virtual function without a PF here (in a virtual machine), told by its device id.
    Orphan,
    /// A subfunction: an auxiliary device below a PCI function, which is its PF.
    Sub {
        /// The nearest PCI function above it. Ids, class and driver of the device are those of this function.
        pf: Arc<PhysicalFunction>,
        /// `sfnum`.
        index: Option<u32>,
        /// The type in its name: the `sf` of `mlx5_core.sf.4`.
        auxiliary_type: String,
    },
}

/// The PF of a VF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalFunction {
    /// Its address.
    pub address: PciAddress,
    /// Its name and alternative names; empty where the PF has no netdev here (on vfio-pci, say).
    pub names: Vec<String>,
    /// The link type of its netdev.
    pub link_type: Option<LinkType>,
    /// Whether its link is up.
    pub link: Option<LinkState>,
}

/// A network interface of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netdev {
    /// Its name.
    pub name: String,
    /// The alternative names (`ip link property add … altname`).
    pub alternative_names: Vec<String>,
    /// Its link type.
    pub link_type: Option<LinkType>,
    /// Whether its link is up; read of PFs and plain functions only.
    pub link: Option<LinkState>,
    /// The kernel's port name (`p0`, `pf0vf1`), in switchdev mode.
    pub port_name: Option<String>,
}

/// Whether a link is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    /// Administratively up.
    pub up: bool,
    /// Carrier, where the kernel tells it.
    pub carrier: Option<bool>,
}

impl LinkState {
    /// The state of a function: one port that is up, or has carrier, is enough.
    pub fn of(netdevs: &[Netdev]) -> Option<Self> {
        let links = || netdevs.iter().filter_map(|netdev| netdev.link);
        links().next()?;
        let up = links().any(|link| link.up);
        let carrier = links().filter(|link| link.up).filter_map(|link| link.carrier).max();
        Some(Self { up, carrier })
    }
}

/// A link type, from the ARP hardware type of a netdev
/// (<https://github.com/torvalds/linux/blob/master/include/uapi/linux/if_arp.h>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkType {
    /// `ARPHRD_ETHER`, 1.
    Ether,
    /// `ARPHRD_INFINIBAND`, 32.
    Infiniband,
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ether => "ether",
            Self::Infiniband => "infiniband",
        })
    }
}

/// A default route that leaves the node through a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultRoute {
    /// The route as `ip route` prints it.
    pub route: String,
    /// The interfaces from the route's own down to the device's netdev: `["bond0", "ens1f0"]`.
    pub through: Vec<String>,
}

impl fmt::Display for DefaultRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.route)?;
        if self.through.len() > 1 {
            write!(f, " (through {})", self.through.join(" > "))?;
        }
        Ok(())
    }
}

/// A userspace I/O handle through VFIO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vfio {
    /// The IOMMU group; a number that changes with every boot and re-bind.
    pub group: u32,
    /// Whether the group has no IOMMU behind it (`/sys/kernel/iommu_groups/N/name` is `vfio-noiommu`).
    pub no_iommu: bool,
    /// A member of the group that keeps every other from being opened, with its driver: `0000:04:02.0 (e1000)`.
    pub blocked_by: Option<String>,
    /// The number of `/dev/vfio/devices/vfio<n>`, where the kernel has it and a pool wants it.
    pub cdev: Option<u32>,
}

/// The RDMA devices of a function and their character devices, as names below `/dev/infiniband`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rdma {
    /// Names of the RDMA devices: `mlx5_2`.
    pub devices: Vec<String>,
    /// `uverbs<n>`.
    pub uverbs: Vec<String>,
    /// `umad<n>`.
    pub umad: Vec<String>,
    /// `issm<n>`.
    pub issm: Vec<String>,
    /// The partition key at index 0 of port 1, where a pool asks for it.
    pub p_key: Option<u16>,
}

/// A vDPA device of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vdpa {
    /// Its name on the vDPA bus: `vdpa0`.
    pub name: String,
    /// What it is bound to; `None` where no driver is.
    pub kind: Option<VdpaType>,
    /// The number of `/dev/vhost-vdpa-<n>`. It is not the number in the name.
    pub vhost: Option<u32>,
}

/// What a vDPA device is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VdpaType {
    /// `vhost_vdpa`.
    Vhost,
    /// `virtio_vdpa`.
    Virtio,
}

impl fmt::Display for VdpaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vhost => "vhost",
            Self::Virtio => "virtio",
        })
    }
}

/// A uacce entry (Kunpeng accelerators).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uacce {
    /// Name of the class entry and of the node: `hisi_hpre-6`. It changes with every reload of a driver.
    pub name: String,
    /// Interface version: `hisi_qm_v2`, with the suffix `_noiommu` where no SMMU guards it.
    pub api: Option<String>,
    /// Algorithms, in the kernel's order.
    pub algorithms: Vec<String>,
    /// Whether the driver has isolated the function after errors.
    pub isolated: bool,
    /// The KAE driver's `dev_state`: 0 is normal, -1 stopped.
    pub dev_state: Option<i64>,
    /// Where the entry in `/sys/class/uacce` points to.
    pub class_link: Option<String>,
}

/// A PCI function of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kubelet's id.
    pub id: DeviceId,
    /// The PCI function.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: HexId,
    /// Device id.
    pub device: HexId,
    /// Class.
    pub class: PciClass,
    /// PF, VF, …
    pub function: Function,
    /// The bound driver; `None` where none is bound.
    pub driver: Option<String>,
    /// Its netdevs, sorted by name, representors left out.
    pub netdevs: Vec<Netdev>,
    /// NUMA node, of the function or else of a parent bridge or the PF.
    pub numa_node: Option<u32>,
    /// The IOMMU group, where a scan asked for it.
    pub iommu_group: Option<u32>,
    /// `acpi_index` (firmware's index of the slot).
    pub acpi_index: Option<u32>,
    /// The VFIO handle, where the bound driver gives one.
    pub vfio: Option<Vfio>,
    /// The number of the userspace I/O node, where the bound driver gives one.
    pub uio: Option<u32>,
    /// RDMA devices.
    pub rdma: Option<Box<Rdma>>,
    /// vDPA device.
    pub vdpa: Option<Box<Vdpa>>,
    /// Its representor on the host, in switchdev mode.
    pub representor: Option<String>,
    /// uacce entry.
    pub uacce: Option<Box<Uacce>>,
    /// The DDP package that its PF runs, where a pool asks for it.
    pub ddp_profile: Option<Box<str>>,
    /// The default route that leaves through it.
    pub default_route: Option<Box<DefaultRoute>>,
    /// Paths of its device nodes that this process would see if they existed, and does not.
    pub absent_nodes: Vec<String>,
}

impl Device {
    /// A device of which no more is known yet than what it is.
    pub fn bare(
        id: DeviceId,
        address: PciAddress,
        (vendor, device): (HexId, HexId),
        class: PciClass,
        function: Function,
    ) -> Self {
        Self {
            id,
            address,
            vendor,
            device,
            class,
            function,
            driver: None,
            netdevs: Vec::new(),
            numa_node: None,
            iommu_group: None,
            acpi_index: None,
            vfio: None,
            uio: None,
            rdma: None,
            vdpa: None,
            representor: None,
            uacce: None,
            ddp_profile: None,
            default_route: None,
            absent_nodes: Vec::new(),
        }
    }

    /// The PF, for a VF or an SF.
    pub fn pf(&self) -> Option<&PhysicalFunction> {
        match &self.function {
            Function::Virtual { pf, .. } | Function::Sub { pf, .. } => Some(pf),
            Function::Physical { .. } | Function::Orphan => None,
        }
    }

    /// The index of the VF, or the number of the SF.
    pub fn index(&self) -> Option<u32> {
        match &self.function {
            Function::Virtual { index, .. } | Function::Sub { index, .. } => *index,
            Function::Physical { .. } | Function::Orphan => None,
        }
    }

    /// The link type of its netdev, else of its PF's (a netdev may have moved into a pod).
    pub fn link_type(&self) -> Option<LinkType> {
        self.link_types().next()
    }

    /// The link types of its netdevs, else of its PF's. The ports of one function need not be of one type.
    pub fn link_types(&self) -> impl Iterator<Item = LinkType> {
        let own = self.netdevs.iter().filter_map(|netdev| netdev.link_type);
        let of_pf = self.pf().and_then(|pf| pf.link_type);
        let has_own = self.netdevs.iter().any(|netdev| netdev.link_type.is_some());
        own.chain(of_pf.filter(|_| !has_own))
    }

    /// All names of its netdevs.
    pub fn netdev_names(&self) -> impl Iterator<Item = &str> {
        self.netdevs.iter().map(|netdev| netdev.name.as_str())
    }

    /// Whether it is an engine of a Kunpeng accelerator (ZIP, SEC, HPRE, RDE; PF and VF ids of `hisilicon` in
    /// <https://github.com/torvalds/linux/tree/master/drivers/crypto/hisilicon>).
    pub fn is_kae_engine(&self) -> bool {
        self.vendor.0 == 0x19e5
            && matches!(self.device.0, 0xa250 | 0xa251 | 0xa255 | 0xa256 | 0xa258 | 0xa259 | 0xa25a | 0xa25b)
    }

    /// Whether the device reaches all of the memory: its VFIO group or its queues have no IOMMU behind them.
    pub fn lacks_iommu(&self) -> bool {
        self.vfio.as_ref().is_some_and(|vfio| vfio.no_iommu)
            || self
                .uacce
                .as_ref()
                .and_then(|uacce| uacce.api.as_deref())
                .is_some_and(|api| api.ends_with("_noiommu"))
    }

    /// The IOMMU group that it may share with others. Without an IOMMU every device has a group of its own.
    pub fn shareable_group(&self) -> Option<u32> {
        self.vfio.as_ref().filter(|vfio| !vfio.no_iommu).map(|vfio| vfio.group)
    }

    /// Paths on the host of the nodes without which its bound driver is of no use to a container.
    pub fn required_nodes(&self) -> Vec<String> {
        let mut nodes = Vec::new();
        nodes.extend(self.vfio.iter().map(Vfio::host_node));
        nodes.extend(self.uio.map(|number| format!("/dev/uio{number}")));
        nodes.extend(self.uacce.as_deref().map(Uacce::node));
        nodes.extend(self.vdpa.as_deref().and_then(Vdpa::node));
        if let Some(rdma) = &self.rdma {
            nodes.extend(rdma.uverbs.iter().map(|name| format!("/dev/infiniband/{name}")));
            nodes.push(Rdma::CONNECTION_MANAGER.to_owned());
        }
        nodes
    }

    fn vdpa_kind(&self) -> Option<VdpaType> {
        self.vdpa.as_ref().and_then(|vdpa| vdpa.kind)
    }

    /// Whether it has an RDMA device in the host's network namespace.
    fn has_rdma_here(&self) -> bool {
        self.rdma.as_ref().is_some_and(|rdma| !rdma.devices.is_empty())
    }

    /// What a container reached this device through `earlier` and cannot now, though its driver is the same.
    pub fn lost_handle(&self, earlier: &Self, with_rdma: bool) -> Option<&'static str> {
        let handles = [
            ("VFIO group", self.vfio.is_some(), earlier.vfio.is_some()),
            ("UIO device", self.uio.is_some(), earlier.uio.is_some()),
            ("uacce entry", self.uacce.is_some(), earlier.uacce.is_some()),
            ("vDPA device", self.vdpa_kind() == earlier.vdpa_kind(), earlier.vdpa.is_some()),
            ("RDMA device", !with_rdma || self.has_rdma_here(), earlier.rdma.is_some()),
        ];
        handles.iter().find(|(_, now, before)| *before && !now).map(|(name, ..)| *name)
    }
}

impl Rdma {
    /// The node of the connection manager: the host has one for all RDMA devices.
    pub const CONNECTION_MANAGER: &str = "/dev/infiniband/rdma_cm";
}

impl Vfio {
    /// `/dev/vfio/<group>`, or `/dev/vfio/noiommu-<group>`.
    pub fn host_node(&self) -> String {
        let prefix = if self.no_iommu { "noiommu-" } else { "" };
        format!("/dev/vfio/{prefix}{}", self.group)
    }

    /// `/dev/vfio/devices/vfio<n>`.
    pub fn cdev_node(&self) -> Option<String> {
        self.cdev.map(|number| format!("/dev/vfio/devices/vfio{number}"))
    }

    /// The path under which a container sees the group, with an IOMMU or without.
    pub fn container_node(&self) -> String {
        format!("/dev/vfio/{}", self.group)
    }
}

impl Vdpa {
    /// The node of a device that is bound to `vhost_vdpa`.
    pub fn node(&self) -> Option<String> {
        self.vhost.map(|number| format!("/dev/vhost-vdpa-{number}"))
    }
}

impl Uacce {
    /// The node. A container must see it under the same name: libwd pairs it with the class entry.
    pub fn node(&self) -> String {
        format!("/dev/{}", self.name)
    }
}
