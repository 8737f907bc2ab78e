//! The checked config: every value is parsed, every pool in it can be served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    ClassPattern, DeviceId, HexId, IndexRanges, LinkType, PciAddress, ResourceName, VdpaType,
};

/// A checked config.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The pools that can be served, in file order.
    pub pools: Vec<Arc<PoolConfig>>,
    /// The pools that have an error and are not served.
    pub refused: Vec<RefusedPool>,
}

impl Config {
    /// Whether a pool selects by DDP package.
    pub fn asks_for_ddp_profiles(&self) -> bool {
        self.pools.iter().flat_map(|pool| &pool.selectors).any(Selector::asks_for_ddp_profiles)
    }
}

/// A pool that is not served because of an error in its config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPool {
    /// Position in `resourceList`, from 0.
    pub position: usize,
    /// `prefix/name` as written, where a name could be read.
    pub resource: Option<String>,
    /// The first error, as a sentence with its place.
    pub reason: String,
}

/// A pool: one extended resource.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Position in `resourceList`, from 0.
    pub position: usize,
    /// The extended resource.
    pub resource: ResourceName,
    /// Which devices and selectors apply.
    pub device_type: DeviceType,
    /// Do not advertise NUMA nodes.
    pub exclude_topology: bool,
    /// Selector objects in order; without one, the pool takes every device of its type.
    pub selectors: Vec<Selector>,
    /// Values for the `…_INFO` variable.
    pub additional_info: AdditionalInfo,
    /// In order; empty = the kubelet chooses.
    pub allocation_policy: Vec<AllocationPolicy>,
    /// When a device counts as unhealthy.
    pub health: HealthPolicy,
    /// How many containers may share one device.
    pub replicas: u32,
    /// Advertise nothing until then.
    pub wait_for: Option<WaitFor>,
    /// How long a device that appears must be still.
    pub settle: Duration,
    /// Ask the kubelet for PreStartContainer.
    pub pre_start_check: bool,
    /// Which VFIO interface is handed over.
    pub vfio: VfioMode,
    /// Whether devices without an IOMMU are handed out.
    pub allow_no_iommu: bool,
    /// Devices that are exempt from the default-route guard.
    pub allow_in_use: Vec<DeviceId>,
    /// What of `/sys/class/uacce` a container sees.
    pub uacce_view: UacceView,
}

impl PoolConfig {
    /// [`Self::settle`] where nothing is written.
    pub const SETTLE: Duration = Duration::from_secs(1);
}

impl PoolConfig {
    /// Whether a Kunpeng engine with a uacce node could be in this pool.
    pub fn may_hold_engines(&self) -> bool {
        let may = |selector: &Selector| {
            let vendor = selector.vendors.as_ref().is_none_or(|vendors| vendors.contains(&HexId(0x19e5)));
            let driver = selector.drivers.as_ref().is_none_or(|drivers| {
                drivers.iter().any(|driver| driver.starts_with("hisi_") && !driver.contains("vfio"))
            });
            vendor && driver
        };
        self.device_type == DeviceType::Accelerator
            && (self.selectors.is_empty() || self.selectors.iter().any(may))
    }
}

/// `deviceType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceType {
    /// PCI functions of class 0x02.
    #[default]
    NetDevice,
    /// Accelerators and co-processors.
    Accelerator,
    /// Auxiliary devices (subfunctions).
    AuxNetDevice,
}

impl DeviceType {
    /// As written in a config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NetDevice => "netDevice",
            Self::Accelerator => "accelerator",
            Self::AuxNetDevice => "auxNetDevice",
        }
    }
}

/// One selector object. `None` = not asked for; an empty list = every entry was bad, so it matches nothing.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    /// Vendor ids.
    pub vendors: Option<Vec<HexId>>,
    /// Device ids.
    pub devices: Option<Vec<HexId>>,
    /// Names of the bound driver; the empty name = no driver bound.
    pub drivers: Option<Vec<String>>,
    /// Addresses.
    pub pci_addresses: Option<Vec<PciAddress>>,
    /// Firmware indexes.
    pub acpi_indexes: Option<Vec<u32>>,
    /// Auxiliary types; only `sf`.
    pub aux_types: Option<Vec<String>>,
    /// PF names.
    pub pf_names: Option<Vec<PfName>>,
    /// PF addresses.
    pub root_devices: Option<Vec<RootDevice>>,
    /// Link types.
    pub link_types: Option<Vec<LinkType>>,
    /// DDP profiles.
    pub ddp_profiles: Option<Vec<String>>,
    /// Default partition keys.
    pub p_keys: Option<Vec<u16>>,
    /// Only RDMA-capable devices.
    pub is_rdma: bool,
    /// Only vDPA devices of this type.
    pub vdpa_type: Option<VdpaType>,
    /// Hand over vhost-net and tun.
    pub need_vhost_net: bool,
    /// PCI classes.
    pub classes: Option<Vec<ClassPattern>>,
    /// PF, VF or SF.
    pub function_types: Option<Vec<FunctionType>>,
    /// VF indices, whatever the PF.
    pub vf_indexes: Option<Vec<IndexRanges>>,
    /// A device that matches this too is left out.
    pub exclude: Option<Box<Selector>>,
}

impl Selector {
    /// Whether it, or what it excludes, selects by DDP package.
    pub fn asks_for_ddp_profiles(&self) -> bool {
        self.ddp_profiles.is_some()
            || self.exclude.as_ref().is_some_and(|inner| inner.asks_for_ddp_profiles())
    }

    /// Whether no test is asked for, so that every device of the type matches. Whatever is only handed over
    /// (`needVhostNet`) is no test.
    pub fn takes_everything(&self) -> bool {
        // Taken apart so that a new selector cannot be forgotten here.
        let Self {
            vendors,
            devices,
            drivers,
            pci_addresses,
            acpi_indexes,
            aux_types,
            pf_names,
            root_devices,
            link_types,
            ddp_profiles,
            p_keys,
            is_rdma,
            vdpa_type,
            need_vhost_net: _,
            classes,
            function_types,
            vf_indexes,
            exclude,
        } = self;
        vendors.is_none()
            && devices.is_none()
            && drivers.is_none()
            && pci_addresses.is_none()
            && acpi_indexes.is_none()
            && aux_types.is_none()
            && pf_names.is_none()
            && root_devices.is_none()
            && link_types.is_none()
            && ddp_profiles.is_none()
            && p_keys.is_none()
            && !is_rdma
            && vdpa_type.is_none()
            && classes.is_none()
            && function_types.is_none()
            && vf_indexes.is_none()
            && exclude.is_none()
    }
}

/// An entry of `pfNames`.
#[derive(Debug, Clone)]
pub struct PfName {
    /// The name.
    pub name: NamePattern,
    /// VF or SF indices; `None` = all.
    pub indexes: Option<IndexRanges>,
}

/// A name to compare with, without regard to ASCII case.
#[derive(Debug, Clone)]
pub enum NamePattern {
    /// Exactly this name.
    Exact(String),
    /// `re:`, a regular expression.
    Regex(regex_lite::Regex),
}

impl NamePattern {
    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(wanted) => wanted.eq_ignore_ascii_case(name),
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}

impl std::fmt::Display for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Regex(regex) => write!(f, "re:{regex}"),
        }
    }
}

/// An entry of `rootDevices`.
#[derive(Debug, Clone)]
pub struct RootDevice {
    /// The PF.
    pub address: PciAddress,
    /// VF or SF indices; `None` = all.
    pub indexes: Option<IndexRanges>,
}

/// An entry of `functionTypes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionType {
    /// Physical functions and plain functions.
    Pf,
    /// Virtual functions.
    Vf,
    /// Subfunctions.
    Sf,
}

impl std::fmt::Display for FunctionType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pf => "pf",
            Self::Vf => "vf",
            Self::Sf => "sf",
        })
    }
}

/// An entry of `allocationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationPolicy {
    /// As few NUMA nodes as possible.
    Numa,
    /// As few PFs as possible.
    Packed,
    /// As many PFs as possible.
    Spread,
    /// The longest unused first.
    Lru,
}

/// `health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthPolicy {
    /// How the link is judged.
    pub link: LinkHealth,
    /// How long a link must be down.
    pub down_after: Duration,
    /// How long a link must be up again.
    pub up_after: Duration,
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self {
            link: LinkHealth::Carrier,
            down_after: Duration::from_secs(5),
            up_after: Duration::from_secs(1),
        }
    }
}

/// `health.link`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkHealth {
    /// Unhealthy when administratively up and without carrier.
    Carrier,
    /// Not judged.
    Ignore,
    /// Unhealthy when administratively down.
    Admin,
}

/// `waitFor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitFor {
    /// How many devices must be there.
    pub devices: u32,
    /// After this time the pool is advertised all the same.
    pub timeout: Duration,
}

impl WaitFor {
    /// [`Self::timeout`] where nothing is written.
    pub const TIMEOUT: Duration = Duration::from_secs(600);
}

/// `vfio`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VfioMode {
    /// `/dev/vfio/<group>`.
    #[default]
    Group,
    /// `/dev/iommu` and `/dev/vfio/devices/vfio<n>`.
    Iommufd,
    /// Both.
    Both,
}

/// `uacceView`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UacceView {
    /// Filtered where one KAE pool is configured, else the host's.
    #[default]
    Auto,
    /// Only the container's own engines.
    Filtered,
    /// All engines of the host.
    Host,
}

/// To whom an entry of `additionalInfo` belongs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InfoTarget {
    /// `*`.
    Every,
    /// One device.
    Device(DeviceId),
}

/// `additionalInfo`. Its values may be secrets: they are never logged, so its `Debug` shows keys only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AdditionalInfo(pub BTreeMap<InfoTarget, BTreeMap<String, String>>);

impl AdditionalInfo {
    /// The entries of one device: its own win over those of `*`, key by key.
    pub fn of(&self, id: &DeviceId) -> BTreeMap<&str, &str> {
        [InfoTarget::Every, InfoTarget::Device(id.clone())]
            .iter()
            .filter_map(|target| self.0.get(target))
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }
}

impl std::fmt::Debug for AdditionalInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.0.iter().map(|(target, values)| (target, values.keys()));
        f.debug_map().entries(keys).finish()
    }
}
