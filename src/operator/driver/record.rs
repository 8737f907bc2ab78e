//! What is written down: for this boot whether the driver can be used, and for good what was installed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::Checked;
use super::error::DriverError;
use super::found::Found;
use super::node::{self, Node, RECORD_FILE};

/// What was installed on the node by this program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The kernel that packages were installed for.
    pub kernel: Option<String>,
    /// Which packages were supplied.
    pub packages_hash: Option<String>,
    /// Names of packages that were not there before.
    pub packages: Vec<String>,
    /// How many virtual functions were made, by the address of the physical function.
    pub virtual_functions: BTreeMap<String, u32>,
}

impl Record {
    /// What is written down. A record that cannot be understood says nothing.
    ///
    /// # Errors
    /// Where the file is there and cannot be read.
    pub fn read(node: &Node) -> Result<Self, DriverError> {
        let text = node.file(RECORD_FILE)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// Writes it down; nothing to remember is no file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, node: &Node) -> Result<(), DriverError> {
        match *self == Self::default() {
            true => node.remove(RECORD_FILE).map(|_| ()),
            false => node.write(RECORD_FILE, &json(self)),
        }
    }

    /// The functions that are still as they were made.
    pub fn functions_that_are_there(&self, found: &Found) -> BTreeMap<String, u32> {
        let is_there = |address: &String, count: u32| {
            let physical =
                |engine: &super::found::Engine| engine.physical.is_some_and(|p| p.functions == count);
            found.engines.iter().any(|engine| engine.address.to_string() == *address && physical(engine))
        };
        let ours = self.virtual_functions.iter().filter(|(address, count)| is_there(address, **count));
        ours.map(|(address, &count)| (address.clone(), count)).collect()
    }
}

/// The validation file `driver-ready`: while it is there, and of this boot, containers can use the engines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The kernel.
    pub kernel: String,
    /// The boot. `/run` is empty after a reboot on most nodes, and not on all.
    pub boot: String,
    /// `found`, `loaded` or `installed`.
    pub driver: String,
    /// Which packages were supplied, where they were installed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub packages_hash: Option<String>,
    /// Modules with their `uacce_mode`.
    pub modules: BTreeMap<String, Option<String>>,
    /// uacce entries by type.
    pub entries: BTreeMap<String, Vec<String>>,
}

/// Why a node is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// There is no file.
    #[error("{} is not there: the driver is not installed, or cannot be used", .0.display())]
    Absent(PathBuf),
    /// It is no validation file.
    #[error("{} is no validation file of this program", .0.display())]
    Unknown(PathBuf),
    /// It is older than the machine's last start.
    #[error("{} is of another boot or kernel", .0.display())]
    Stale(PathBuf),
}

impl Ready {
    /// What a check found, to be written down.
    ///
    /// # Errors
    /// Where kernel and boot are unknown.
    pub fn new(node: &Node, driver: &str, found: &Found, checked: &Checked) -> Result<Self, DriverError> {
        let modules = found.modules.iter();
        let entries = checked.entries.iter();
        Ok(Self {
            kernel: node.kernel()?,
            boot: node.boot()?,
            driver: driver.to_owned(),
            packages_hash: Record::read(node)?.packages_hash,
            modules: modules.map(|(name, module)| ((*name).to_owned(), module.uacce_mode.clone())).collect(),
            entries: entries.map(|(kind, names)| (kind.as_str().to_owned(), names.clone())).collect(),
        })
    }

    /// Where it lies.
    pub fn path(node: &Node) -> PathBuf {
        node.run_directory().join("driver-ready")
    }

    /// The file of this boot.
    ///
    /// # Errors
    /// Says why the node is not ready.
    pub fn read(node: &Node) -> Result<Self, NotReady> {
        let path = Self::path(node);
        let Ok(Some(text)) = node::read(&path) else { return Err(NotReady::Absent(path)) };
        let Ok(ready) = serde_json::from_str::<Self>(&text) else { return Err(NotReady::Unknown(path)) };
        let is_now = |now: Result<String, DriverError>, then: &str| now.is_ok_and(|now| now == then);
        match is_now(node.boot(), &ready.boot) && is_now(node.kernel(), &ready.kernel) {
            true => Ok(ready),
            false => Err(NotReady::Stale(path)),
        }
    }

    /// Writes it, in the place of `driver-removed`.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, node: &Node) -> Result<(), DriverError> {
        node::remove(&removed_path(node))?;
        node::write(&Self::path(node), &json(self))
    }

    /// Removes it; says whether it was there.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn remove(node: &Node) -> Result<bool, DriverError> {
        node::remove(&Self::path(node))
    }
}

/// The file that says that the driver was removed in this boot, as somebody asked for.
pub(super) fn removed_path(node: &Node) -> PathBuf {
    node.run_directory().join("driver-removed")
}

/// Whether the driver was removed in this boot.
pub(super) fn is_removed(node: &Node) -> bool {
    let text = node::read(&removed_path(node)).ok().flatten();
    text.is_some_and(|text| node.boot().is_ok_and(|boot| boot == text.trim()))
}

/// Writes `driver-removed` in the place of `driver-ready`.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn write_removed(node: &Node) -> Result<(), DriverError> {
    Ready::remove(node)?;
    node::write(&removed_path(node), &format!("{}\n", node.boot()?))
}

fn json(value: &impl Serialize) -> String {
    // These types have no keys but texts, so that this cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
