//! Whether the driver of a node is as it should be.

use std::collections::BTreeMap;
use std::fmt;

use super::engine::{EngineType, SHARED_MODULES};
use super::error::DriverError;
use super::found::Found;
use super::node::Node;
use super::permissions::{self, Permissions};

/// Something that keeps containers from an engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// No engine of any enabled type.
    NoEngines,
    /// A module is not loaded.
    ModuleNotLoaded(&'static str),
    /// A driver that serves the kernel alone.
    KernelOnly(&'static str),
    /// A driver that made no uacce entry, of this type.
    NoEntry(EngineType),
    /// A uacce entry without a node.
    NoNode(String),
    /// A node with other permissions.
    Mode {
        /// The node.
        node: String,
        /// What it has.
        now: u32,
        /// What it should have.
        wanted: u32,
    },
    /// A node of another group.
    Group {
        /// The node.
        node: String,
        /// The group that it should have.
        wanted: String,
    },
}

impl Problem {
    /// One word, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoEngines => "NoEngines",
            Self::ModuleNotLoaded(_) => "ModuleNotLoaded",
            Self::KernelOnly(_) => "KernelOnly",
            Self::NoEntry(_) => "NoUacceEntry",
            Self::NoNode(_) => "NoUacceNode",
            Self::Mode { .. } => "Mode",
            Self::Group { .. } => "Group",
        }
    }

    /// Whether setting the permissions of nodes is all that it takes.
    pub fn is_of_permissions(&self) -> bool {
        matches!(self, Self::Mode { .. } | Self::Group { .. })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEngines => f.write_str("no engine of any enabled type is on the PCI bus"),
            Self::ModuleNotLoaded(module) => write!(f, "the module {module} is not loaded"),
            Self::KernelOnly(module) => {
                write!(
                    f,
                    "{module} is loaded with uacce_mode=0: it serves the kernel alone, and no container"
                )
            }
            Self::NoEntry(kind) => {
                write!(
                    f,
                    "{} is loaded, and no {kind} engine has an entry in /sys/class/uacce",
                    kind.driver()
                )
            }
            Self::NoNode(node) => write!(f, "{node} is not there"),
            Self::Mode { node, now, wanted } => write!(f, "{node} has the mode {now:04o}, not {wanted:04o}"),
            Self::Group { node, wanted } => write!(f, "{node} is not of the group {wanted}"),
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is wrong; none where containers can use the engines.
    pub problems: Vec<Problem>,
    /// What a person should know, and what is no fault.
    pub notes: Vec<String>,
    /// uacce entries by type.
    pub entries: BTreeMap<EngineType, Vec<String>>,
}

/// Judges modules and entries.
pub(super) fn judge(found: &Found, types: &[EngineType]) -> Checked {
    let mut checked = Checked::default();
    let is_there = |kind: &EngineType| found.of(*kind).next().is_some();
    if !types.iter().any(is_there) {
        checked.problems.push(Problem::NoEngines);
    }
    for &kind in types {
        if !is_there(&kind) {
            checked.notes.push(format!("no {kind} engine is on the PCI bus"));
        } else if found.is_all_vfio(kind) {
            checked.notes.push(format!("every {kind} engine is on a VFIO driver, for virtual machines"));
        } else {
            judge_type(found, kind, &mut checked);
        }
    }
    checked.problems.sort();
    checked.problems.dedup();
    checked
}

fn judge_type(found: &Found, kind: EngineType, checked: &mut Checked) {
    let needed = [kind.driver()].into_iter().chain(SHARED_MODULES);
    let missing: Vec<_> = needed.filter(|module| !found.modules.contains_key(module)).collect();
    let mode = found.modules.get(kind.driver()).and_then(|module| module.uacce_mode.as_deref());
    if !missing.is_empty() {
        checked.problems.extend(missing.into_iter().map(Problem::ModuleNotLoaded));
    } else if mode == Some("0") {
        checked.problems.push(Problem::KernelOnly(kind.driver()));
    } else if found.entries(kind).next().is_none() {
        checked.problems.push(Problem::NoEntry(kind));
    } else {
        checked.entries.insert(kind, found.entries(kind).map(|entry| entry.name.clone()).collect());
    }
    for engine in found.of(kind) {
        let Some(entry) = &engine.entry else { continue };
        if entry.is_isolated {
            checked
                .notes
                .push(format!("{} ({}) is isolated by its driver after errors", entry.name, engine.address));
        }
        if entry.lacks_iommu {
            checked.notes.push(format!(
                "{} ({}) has no IOMMU behind it: whoever opens it reaches all memory",
                entry.name, engine.address
            ));
        }
    }
}

/// Checks a node: modules, entries, nodes, and their permissions where some are wanted. Changes nothing.
///
/// # Errors
/// Where PCI functions cannot be listed, or the group does not exist.
pub fn check(
    node: &Node,
    types: &[EngineType],
    wanted: Option<&Permissions>,
) -> Result<Checked, DriverError> {
    let mut checked = judge(&Found::read(node)?, types);
    let entries: Vec<String> = checked.entries.values().flatten().cloned().collect();
    checked.problems.extend(permissions::problems(node, &entries, wanted)?);
    Ok(checked)
}
