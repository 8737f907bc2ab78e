//! Removes the driver from a node, and what was installed for it.

use super::busy::{self, holders};
use super::engine::modules_from_the_top;
use super::error::DriverError;
use super::former::Former;
use super::found::Found;
use super::install::Tell;
use super::node::{Node, OPTIONS_FILE, RULES_FILE};
use super::record::{self, Ready, Record};
use super::{functions, modules, payload, permissions};

/// Unloads the modules and removes options, permissions, packages that were not there before, and the validation file.
/// Doing so again changes nothing.
///
/// # Errors
/// Where somebody uses the driver, who is named; else what failed, and what is as before. What comes after unloading is done
/// by another try.
pub fn remove(node: &Node, tell: Tell<'_>) -> Result<(), DriverError> {
    let _lock = node.lock()?;
    let mut record = Record::read(node)?;
    let found = Found::read(node)?;
    let ours = record.functions_that_are_there(&found);
    let holders = holders(&found, &ours, busy::processes(node, &found));
    if !holders.is_empty() {
        return Err(DriverError::Busy { what: "removed", holders });
    }
    let former = Former::take(node, &found, &record)?;
    Ready::remove(node)?;
    let unload = || -> Result<(), DriverError> {
        functions::remove(node, &ours)?;
        Ok(modules::unload(node, &found)?)
    };
    if let Err(source) = unload() {
        let restored = former.restore(node, &[]);
        return Err(DriverError::RolledBack { source: Box::new(source), restored });
    }
    for name in modules_from_the_top() {
        match found.modules.get(name).map(|module| module.references) {
            Some(Some(_)) => tell(&format!("unloaded {name}")),
            Some(None) => tell(&format!("note: {name} is part of the kernel and stays")),
            None => {}
        }
    }
    record.virtual_functions.clear();
    record.write(node)?;
    for path in [RULES_FILE, OPTIONS_FILE] {
        if node.remove(path)? {
            tell(&format!("removed {path}"));
            if path == RULES_FILE {
                permissions::reload(node);
            }
        }
    }
    let removed = payload::remove(node, &record.packages)?;
    if !removed.is_empty() {
        tell(&format!("removed the packages {}", removed.join(", ")));
    }
    if !record.packages.is_empty() {
        modules::index(node, &node.kernel()?)?;
    }
    Record::default().write(node)?;
    record::write_removed(node)?;
    tell("the driver is removed");
    Ok(())
}
