//! Who may open the nodes of engines. The kernel makes them for root alone, and containers seldom run as root.

use std::collections::BTreeMap;
use std::fs::{self, Permissions as Bits};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::check::Problem;
use super::error::DriverError;
use super::found::{Engine, Found};
use super::node::{Node, RULES_FILE};
use crate::model::PciAddress;

/// Whom a node is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Permission bits.
    pub mode: u32,
    /// A group of the node; the kernel's own choice where there is none.
    pub group: Option<String>,
}

impl Permissions {
    /// The rule for udev, which keeps nodes right that are made later
    /// (<https://www.freedesktop.org/software/systemd/man/latest/udev.html>).
    pub fn rule(&self) -> String {
        let group = self.group.as_ref().map(|group| format!(", GROUP=\"{group}\"")).unwrap_or_default();
        format!(
            "# Written by kae-operator: containers that do not run as root may open the nodes of engines.\n\
             SUBSYSTEM==\"uacce\", MODE=\"{:04o}\"{group}\n",
            self.mode
        )
    }
}

/// The node of an entry, where it is one: nobody else's file is followed to.
fn metadata(node: &Node, entry: &str) -> (String, PathBuf, Option<fs::Metadata>) {
    let path = format!("/dev/{entry}");
    let place = node.place(&path);
    let metadata =
        place.symlink_metadata().ok().filter(|metadata| !metadata.is_symlink() && !metadata.is_dir());
    (path, place, metadata)
}

/// The number of a group of the node.
fn group(node: &Node, wanted: &Permissions) -> Result<Option<u32>, DriverError> {
    let Some(name) = &wanted.group else { return Ok(None) };
    let text = node.file("/etc/group")?.unwrap_or_default();
    let number = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.map(Some).ok_or_else(|| DriverError::Group(name.clone()))
}

/// What is wrong with the nodes of these entries.
///
/// # Errors
/// Where the group does not exist.
pub(super) fn problems(
    node: &Node,
    entries: &[String],
    wanted: Option<&Permissions>,
) -> Result<Vec<Problem>, DriverError> {
    let group = wanted.map(|wanted| group(node, wanted)).transpose()?.flatten();
    let mut problems = Vec::new();
    for entry in entries {
        let (path, _, metadata) = metadata(node, entry);
        let Some(metadata) = metadata else {
            problems.push(Problem::NoNode(path));
            continue;
        };
        let Some(wanted) = wanted else { continue };
        let now = metadata.mode() & 0o7777;
        if now != wanted.mode {
            problems.push(Problem::Mode { node: path.clone(), now, wanted: wanted.mode });
        }
        if let (Some(number), Some(name)) = (group, &wanted.group)
            && metadata.gid() != number
        {
            problems.push(Problem::Group { node: path, wanted: name.clone() });
        }
    }
    Ok(problems)
}

/// Sets the permissions of the nodes of these entries, and says which were not as they are now. A node that goes away
/// meanwhile is nobody's.
///
/// # Errors
/// Where the group does not exist, or the kernel refuses.
pub(super) fn set(node: &Node, entries: &[String], wanted: &Permissions) -> Result<Vec<String>, DriverError> {
    let group = group(node, wanted)?;
    let mut changed = Vec::new();
    for entry in entries {
        let (path, place, metadata) = metadata(node, entry);
        let Some(metadata) = metadata else { continue };
        let other_group = group.filter(|&number| metadata.gid() != number);
        let other_mode = metadata.mode() & 0o7777 != wanted.mode;
        if other_group.is_none() && !other_mode {
            continue;
        }
        match set_one(&place, wanted.mode, other_group) {
            Ok(()) => changed.push(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(DriverError::Write { path: place, source }),
        }
    }
    Ok(changed)
}

fn set_one(place: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    // The group first: a wider mode for the wrong group would open the node to it.
    if group.is_some() {
        chown(place, None, group)?;
    }
    fs::set_permissions(place, Bits::from_mode(mode))
}

/// Mode and group of the nodes of engines that have one.
pub(super) fn of_engines(node: &Node, found: &Found) -> BTreeMap<PciAddress, (u32, u32)> {
    let of_engine = |engine: &Engine| {
        let (.., metadata) = metadata(node, &engine.entry.as_ref()?.name);
        metadata.map(|metadata| (engine.address, (metadata.mode() & 0o7777, metadata.gid())))
    };
    found.engines.iter().filter_map(of_engine).collect()
}

/// Gives nodes the mode and the group again that they had, under whatever names they are now.
///
/// # Errors
/// Where PCI functions cannot be listed, or the kernel refuses.
pub(super) fn restore(node: &Node, former: &BTreeMap<PciAddress, (u32, u32)>) -> Result<(), DriverError> {
    for engine in Found::read(node)?.engines {
        let (Some(entry), Some(&(mode, group))) = (&engine.entry, former.get(&engine.address)) else {
            continue;
        };
        let (_, place, metadata) = metadata(node, &entry.name);
        if metadata.is_some_and(|metadata| (metadata.mode() & 0o7777, metadata.gid()) != (mode, group)) {
            set_one(&place, mode, Some(group))
                .map_err(|source| DriverError::Write { path: place.clone(), source })?;
        }
    }
    Ok(())
}

/// Writes the rule, and has udev read it where there is udev. Says whether the rule is another one now.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn write_rule(node: &Node, wanted: &Permissions) -> Result<bool, DriverError> {
    let rule = wanted.rule();
    if node.file(RULES_FILE)?.as_ref() == Some(&rule) {
        return Ok(false);
    }
    node.write(RULES_FILE, &rule)?;
    reload(node);
    Ok(true)
}

/// udev notices new rules by itself within seconds; this only makes it sooner.
pub(super) fn reload(node: &Node) {
    if let Err(error) = node.programs().run("udevadm", &["control", "--reload"]) {
        tracing::debug!(%error, "udev reads its rules by itself later");
    }
}
