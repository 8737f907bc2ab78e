//! What a scan has to read.

use crate::config::{Config, DeviceType, PoolConfig, Selector};
use crate::model::{ClassPattern, PciClass};

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
}

/// Which facts of netdevs a scan has to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedNetdevs {
    /// The link type.
    pub link_type: bool,
    /// The port name, without which a representor cannot be told from the uplink. A VF has no representors.
    pub port_name: bool,
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

    /// Everything that can be asked for.
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

    fn add(&mut self, pool: &PoolConfig) {
        match pool.device_type {
            DeviceType::NetDevice | DeviceType::AuxNetDevice => self.network = true,
            DeviceType::Accelerator => self.accelerators = true,
        }
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
        self.rdma |= selector.is_rdma;
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

    /// Whether RDMA devices matter.
    pub fn rdma(&self) -> bool {
        self.rdma
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
    pub fn netdevs(&self, virtual_function: bool) -> WantedNetdevs {
        WantedNetdevs { link_type: self.link_types, port_name: !virtual_function }
    }
}
