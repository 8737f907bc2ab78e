//! What is on a node: engines, modules, uacce entries. Read once, judged by pure functions.

use std::collections::BTreeMap;

use super::engine::{EngineType, modules_from_the_top};
use super::error::DriverError;
use super::node::Node;
use crate::host::find;
use crate::model::{Function, HexId, PciAddress};

const FUNCTIONS: &str = "/sys/bus/pci/devices";

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Engines of every type, enabled or not, in the order of their addresses.
    pub engines: Vec<Engine>,
    /// Loaded modules of the chain.
    pub modules: BTreeMap<&'static str, Module>,
}

/// One PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its type.
    pub kind: EngineType,
    /// Its address.
    pub address: PciAddress,
    /// The bound driver.
    pub driver: Option<String>,
    /// What only a physical function has.
    pub physical: Option<Physical>,
    /// It is a virtual function of this machine; one that was passed through to a guest goes with nobody's driver.
    pub is_virtual: bool,
    /// Its uacce entry.
    pub entry: Option<Entry>,
}

/// What only a physical function has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Physical {
    /// `sriov_numvfs`.
    pub functions: u32,
    /// `sriov_totalvfs`.
    pub most: u32,
}

/// An entry in `/sys/class/uacce`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name and its node's.
    pub name: String,
    /// Queues that are free.
    pub available: Option<u32>,
    /// The driver has taken the engine out of service.
    pub is_isolated: bool,
    /// Nothing keeps its queues out of the rest of the memory.
    pub lacks_iommu: bool,
}

/// A loaded module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// How often it is used; `None` where it is part of the kernel and cannot be unloaded.
    pub references: Option<u32>,
    /// Modules that use it.
    pub holders: Vec<String>,
    /// `uacce_mode`: 0 for the kernel alone, 1 with SVA, 2 without.
    pub uacce_mode: Option<String>,
    /// `pf_q_num`: queues of a physical function.
    pub pf_queues: Option<u32>,
}

impl Found {
    /// Looks at a node.
    ///
    /// # Errors
    /// Where PCI functions cannot be listed at all.
    pub fn read(node: &Node) -> Result<Self, DriverError> {
        let host = node.host();
        let names = host
            .list(FUNCTIONS)
            .map_err(|source| DriverError::Read { path: node.place(FUNCTIONS), source })?;
        let engines = names.iter().filter_map(|name| engine(node, name)).collect();
        let modules = modules_from_the_top().filter_map(|name| Some((name, module(node, name)?))).collect();
        Ok(Self { engines, modules })
    }

    /// Engines of a type.
    pub fn of(&self, kind: EngineType) -> impl Iterator<Item = &Engine> {
        self.engines.iter().filter(move |engine| engine.kind == kind)
    }

    /// Names of the uacce entries of a type.
    pub fn entries(&self, kind: EngineType) -> impl Iterator<Item = &Entry> {
        self.of(kind).filter_map(|engine| engine.entry.as_ref())
    }

    /// Whether all engines of a type were handed to a VFIO driver, so that no uacce entry is to be expected.
    pub fn is_all_vfio(&self, kind: EngineType) -> bool {
        self.of(kind).next().is_some() && self.of(kind).all(Engine::is_vfio)
    }
}

impl Engine {
    /// Whether a VFIO driver has it.
    pub fn is_vfio(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| driver.contains("vfio"))
    }
}

fn engine(node: &Node, name: &str) -> Option<Engine> {
    let host = node.host();
    let address = PciAddress::from_sysfs(name)?;
    let attribute = |what: &str| host.read(&format!("{FUNCTIONS}/{name}/{what}")).ok();
    let id = |what: &str| attribute(what)?.parse::<HexId>().ok();
    // Cheaper than to read all there is of every function.
    let kind = EngineType::of_function(id("vendor")?, id("device")?)?;
    let device = find(host, address).ok()?;
    let number = |what: &str| attribute(what).and_then(|text| text.parse().ok()).unwrap_or(0);
    let is_physical = matches!(device.function, Function::Physical { .. });
    let is_virtual = matches!(device.function, Function::Virtual { .. });
    let lacks_iommu = device.lacks_iommu();
    let entry = device.uacce.map(|uacce| Entry {
        available: available(node, &uacce.name),
        is_isolated: uacce.isolated,
        lacks_iommu,
        name: uacce.name,
    });
    Some(Engine {
        kind,
        address,
        driver: device.driver,
        physical: is_physical
            .then(|| Physical { functions: number("sriov_numvfs"), most: number("sriov_totalvfs") }),
        is_virtual,
        entry,
    })
}

/// The drivers of KAE 1.0 keep the attribute one directory further down.
fn available(node: &Node, entry: &str) -> Option<u32> {
    let read =
        |place: &str| node.host().read(&format!("/sys/class/uacce/{entry}/{place}available_instances"));
    read("").or_else(|_| read("attrs/")).ok()?.parse().ok()
}

fn module(node: &Node, name: &str) -> Option<Module> {
    let host = node.host();
    let directory = format!("/sys/module/{name}");
    host.list(&directory).ok()?;
    let parameter = |what: &str| host.read(&format!("{directory}/parameters/{what}")).ok();
    Some(Module {
        references: host.read(&format!("{directory}/refcnt")).ok().and_then(|text| text.parse().ok()),
        holders: host.list(&format!("{directory}/holders")).unwrap_or_default(),
        uacce_mode: parameter("uacce_mode"),
        pf_queues: parameter("pf_q_num").and_then(|text| text.parse().ok()),
    })
}
