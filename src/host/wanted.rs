//! What a scan has to read.

use std::collections::BTreeSet;

use crate::config::{Config, DeviceType, PoolConfig, Selector, VfioMode};
use crate::model::{ClassPattern, DeviceId, PciAddress, PciClass};

/// The facts that a config can ask for; a scan reads no others.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    network: bool,
    accelerators: bool,
    accelerators_by_id: bool,
    classes: Vec<ClassPattern>,
    rdma: bool,
    link_types: bool,
    acpi_indexes: bool,
    iommu_groups: bool,
    any_class: bool,
    devices: BTreeSet<DeviceId>,
    subfunctions: bool,
    vdpa: bool,
    p_keys: bool,
    cdev: bool,
    ddp: bool,
}

/// Which facts of netdevs a scan has to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedNetdevs {
    /// The link type.
    pub link_type: bool,
    /// The port name, without which a representor cannot be told from the uplink. A VF has no representors.
    pub port_name: bool,
    /// Whether its link is up. A VF or SF is judged by its PF.
    pub link: bool,
}

/// Which handles of a device a scan has to read, beside those that a bound driver always gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedHandles {
    /// RDMA devices.
    pub rdma: bool,
    /// vDPA devices.
    pub vdpa: bool,
    /// Partition keys.
    pub p_key: bool,
    /// VFIO character devices.
    pub cdev: bool,
}

impl Wanted {
    /// What the pools of a config ask for.
    pub fn of(config: &Config) -> Self {
        let mut wanted = Self::default();
        for pool in &config.pools {
            wanted.add(pool);
        }
        wanted
    }

    /// Everything that can be asked for, but for DDP packages, for which a process may have to be started.
    pub fn everything() -> Self {
        Self {
            network: true,
            accelerators: true,
            accelerators_by_id: false,
            classes: Vec::new(),
            rdma: true,
            link_types: true,
            acpi_indexes: true,
            iommu_groups: true,
            any_class: false,
            devices: BTreeSet::new(),
            subfunctions: true,
            vdpa: true,
            p_keys: true,
            cdev: true,
            ddp: false,
        }
    }

    /// This, of functions of every class.
    #[must_use]
    pub fn of_any_class(mut self) -> Self {
        self.any_class = true;
        self
    }

    /// This, and what a config asks for beyond it.
    #[must_use]
    pub fn and(mut self, config: &Config) -> Self {
        for pool in &config.pools {
            self.add(pool);
        }
        self
    }

    /// This, and certain devices whatever their class.
    #[must_use]
    pub fn and_devices(mut self, ids: impl IntoIterator<Item = DeviceId>) -> Self {
        self.devices.extend(ids);
        self.subfunctions |= self.devices.iter().any(|id| PciAddress::from_sysfs(id.as_str()).is_none());
        self
    }

    /// Whether it is one of those.
    pub(super) fn device(&self, id: &DeviceId) -> bool {
        self.devices.contains(id)
    }

    fn add(&mut self, pool: &PoolConfig) {
        match pool.device_type {
            DeviceType::NetDevice => self.network = true,
            DeviceType::AuxNetDevice => self.subfunctions = true,
            DeviceType::Accelerator => self.accelerators = true,
        }
        self.ddp |= pool.selectors.iter().any(Selector::asks_for_ddp_profiles);
        self.cdev |= pool.vfio != VfioMode::Group;
        for selector in &pool.selectors {
            self.add_selector(selector);
            if let Some(excluded) = &selector.exclude {
                self.add_selector(excluded);
            }
        }
    }

    fn add_selector(&mut self, selector: &Selector) {
        self.classes.extend(selector.classes.iter().flatten().cloned());
        self.accelerators_by_id |= self.accelerators && selector.devices.is_some();
        self.rdma |= selector.is_rdma || selector.p_keys.is_some();
        self.p_keys |= selector.p_keys.is_some();
        self.vdpa |= selector.vdpa_type.is_some();
        self.link_types |= selector.link_types.is_some();
        self.acpi_indexes |= selector.acpi_indexes.is_some();
    }

    /// Whether functions of a class can be on offer at all.
    pub fn class(&self, class: PciClass) -> bool {
        self.any_class
            || (self.network && class.is_network())
            || (self.accelerators && class.is_accelerator())
            || (self.accelerators_by_id && class.is_accelerator_by_id())
            || self.classes.iter().any(|pattern| pattern.matches(class))
    }

    /// Whether subfunctions matter.
    pub fn subfunctions(&self) -> bool {
        self.subfunctions
    }

    /// Which handles matter.
    pub fn handles(&self) -> WantedHandles {
        WantedHandles { rdma: self.rdma, vdpa: self.vdpa, p_key: self.p_keys, cdev: self.cdev }
    }

    /// Whether DDP packages matter.
    pub fn ddp(&self) -> bool {
        self.ddp
    }

    /// Whether firmware indexes matter.
    pub fn acpi_index(&self) -> bool {
        self.acpi_indexes
    }

    /// Whether the IOMMU group matters whatever the driver.
    pub fn iommu_groups(&self) -> bool {
        self.iommu_groups
    }

    /// Which facts of the netdevs of a function matter.
    pub fn netdevs(&self, has_pf: bool) -> WantedNetdevs {
        WantedNetdevs { link_type: self.link_types, port_name: !has_pf, link: !has_pf }
    }
}
