//! Who uses the driver. It is not taken away from anybody.

use std::collections::BTreeMap;
use std::fmt;

use super::engine::modules_from_the_top;
use super::found::{Engine, Found};
use super::node::Node;

/// Somebody or something that uses the driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// Queues are taken.
    Queues {
        /// The entry.
        entry: String,
        /// The function.
        address: String,
        /// How many are in use.
        used: u32,
        /// How many there are.
        total: u32,
    },
    /// A process has a node open.
    Process {
        /// Its id on the node.
        id: u32,
        /// Its name.
        name: String,
        /// The node.
        node: String,
    },
    /// Virtual functions that somebody else made.
    Functions {
        /// The physical function.
        address: String,
        /// How many.
        count: u32,
    },
    /// A virtual function on a VFIO driver.
    Assigned {
        /// The function.
        address: String,
        /// The driver.
        driver: String,
    },
    /// A module beyond the chain.
    Module {
        /// The module that is used.
        of: &'static str,
        /// The module that uses it.
        by: String,
    },
    /// Users that are no modules.
    References {
        /// The module that is used.
        of: &'static str,
        /// How many.
        count: u32,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queues { entry, address, used, total } => {
                write!(f, "{used} of {total} queues of {entry} ({address}) are in use")
            }
            Self::Process { id, name, node } => write!(f, "the process {name} ({id}) has {node} open"),
            Self::Functions { address, count } => {
                let s = if *count == 1 { "" } else { "s" };
                write!(f, "{address} has {count} virtual function{s}, not made by this program")
            }
            Self::Assigned { address, driver } => {
                write!(f, "{address} is on {driver}, for a virtual machine")
            }
            Self::Module { of, by } => write!(f, "the module {by} uses {of}"),
            Self::References { of, count } => {
                write!(f, "{of} has users in the kernel or through open nodes: {count}")
            }
        }
    }
}

/// Who uses the driver: pure, but for the processes. Virtual functions that this program made (`ours`: how many, by the
/// address of the physical function) are its own to remove; the kernel does not remove them while one is in use.
pub(super) fn holders(found: &Found, ours: &BTreeMap<String, u32>, processes: Vec<Holder>) -> Vec<Holder> {
    let mut holders: Vec<Holder> =
        found.engines.iter().flat_map(|engine| of_engine(found, engine, ours)).collect();
    holders.extend(processes);
    let is_of_chain = |name: &String| modules_from_the_top().any(|module| module == name);
    for of in modules_from_the_top() {
        let Some(module) = found.modules.get(of) else { continue };
        let others = module.holders.iter().filter(|name| !is_of_chain(name));
        holders.extend(others.map(|by| Holder::Module { of, by: by.clone() }));
        let by_modules = u32::try_from(module.holders.len()).unwrap_or(u32::MAX);
        let count = module.references.unwrap_or(0).saturating_sub(by_modules);
        if count > 0 {
            holders.push(Holder::References { of, count });
        }
    }
    holders
}

fn of_engine(found: &Found, engine: &Engine, ours: &BTreeMap<String, u32>) -> Vec<Holder> {
    let mut holders = Vec::new();
    let address = engine.address.to_string();
    if let Some(driver) = engine.driver.as_ref().filter(|_| engine.is_vfio() && engine.is_virtual) {
        holders.push(Holder::Assigned { address: address.clone(), driver: driver.clone() });
    }
    let Some(physical) = engine.physical else { return holders };
    if physical.functions > 0 && ours.get(&address) != Some(&physical.functions) {
        holders.push(Holder::Functions { address: address.clone(), count: physical.functions });
    }
    // How many queues a virtual function has is nowhere to be read.
    let total = found.modules.get(engine.kind.driver()).and_then(|module| module.pf_queues);
    if let (Some(entry), Some(total)) = (&engine.entry, total)
        && let Some(available) = entry.available.filter(|&available| available < total)
    {
        let entry = entry.name.clone();
        holders.push(Holder::Queues { entry, address, used: total - available, total });
    }
    holders
}

/// Processes that have a node of an engine open. A process that cannot be looked at, or ends meanwhile, is left out: the
/// counts of queues and references tell of it, too.
pub(super) fn processes(node: &Node, found: &Found) -> Vec<Holder> {
    let host = node.host();
    let nodes: Vec<String> = found
        .engines
        .iter()
        .filter_map(|engine| engine.entry.as_ref())
        .map(|entry| format!("/dev/{}", entry.name))
        .collect();
    let mut holders = Vec::new();
    for id in host.list("/proc").unwrap_or_default().iter().filter_map(|name| name.parse::<u32>().ok()) {
        let directory = format!("/proc/{id}/fd");
        for descriptor in host.list(&directory).unwrap_or_default() {
            let Ok(target) = host.link(&format!("{directory}/{descriptor}")) else { continue };
            if nodes.contains(&target) {
                let name = host.read(&format!("/proc/{id}/comm")).unwrap_or_default();
                holders.push(Holder::Process { id, name, node: target });
            }
        }
    }
    holders.sort();
    holders.dedup();
    holders
}
