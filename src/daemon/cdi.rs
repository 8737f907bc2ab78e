//! CDI specs on disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::Deserialize;

use super::files::put;
use crate::handout::{CdiMode, SharedNodes, cdi, nodes};
use crate::model::{DeviceId, DeviceNode, ResourceName};
use crate::pool::{Member, Pool};

/// Where runtimes look for specs that are made while a node runs.
pub const CDI_DIRECTORY: &str = "/var/run/cdi";

/// The directory of the specs, and how runtimes are told.
#[derive(Debug, Clone)]
pub struct CdiDirectory {
    path: PathBuf,
    /// How runtimes are told.
    pub mode: CdiMode,
}

impl CdiDirectory {
    /// A directory that need not exist yet.
    pub fn new(path: impl Into<PathBuf>, mode: CdiMode) -> Self {
        Self { path: path.into(), mode }
    }

    /// Writes the spec of a pool with its devices as they are now, atomically; one that is there is replaced, and only
    /// where it differs. Without a device that has nodes, the spec is removed.
    ///
    /// # Errors
    /// The path, and what the kernel said.
    pub fn write(&self, pool: &Pool, shared: SharedNodes) -> Result<(), (PathBuf, io::Error)> {
        let with_nodes = |member: &Member| {
            let device = &member.device;
            (device.id.clone(), nodes(&pool.config, device, pool.selector(member), shared))
        };
        let devices: Vec<(DeviceId, _)> = pool.members.iter().map(with_nodes).collect();
        let name = cdi::file_name(&pool.config.resource);
        let path = self.path.join(&name);
        let done = match cdi::spec(&pool.config.resource, &devices) {
            // Runtimes watch the directory and read whatever ends in `.json`.
            Some(text) => put(&self.path, &name, &text, 0o644),
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        done.map_err(|error| (path, error))
    }
}

/// A CDI device that a running container was given under a kind which its pool has not.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// The pool that the device came from.
    pub(super) resource: ResourceName,
    /// The kind: that of another plugin, say.
    pub(super) kind: String,
    /// The device.
    pub(super) id: DeviceId,
    /// Its nodes as they are now.
    pub(super) nodes: Vec<DeviceNode>,
}

type WithNodes = (DeviceId, Vec<DeviceNode>);

/// What is looked at of a spec.
#[derive(Deserialize)]
struct Seen {
    devices: Vec<SeenDevice>,
}

#[derive(Deserialize)]
struct SeenDevice {
    name: String,
}

impl CdiDirectory {
    /// Keeps devices resolvable that containers were given by another plugin: the runtime looks for them whenever such a
    /// container starts again. A device that a spec of somebody else names is left to that, for two specs with one device
    /// cancel each other out.
    ///
    /// Specs of pools that are gone are removed, unless a container has a device of theirs. Another instance with other
    /// pools may write to the directory too; what is its is not touched.
    pub(super) fn keep(&self, kept: &[Kept], pools: &[&ResourceName], is_ours: impl Fn(&str) -> bool) {
        let own: Vec<String> = pools.iter().map(|resource| cdi::file_name(resource)).collect();
        let is_kept_by_us = |name: &str| pools.iter().any(|pool| name.starts_with(&cdi::kept_prefix(pool)));
        let others: Vec<(String, String)> = self
            .names()
            .into_iter()
            .filter(|name| !own.contains(name) && !is_kept_by_us(name))
            .filter_map(|name| Some((fs::read_to_string(self.path.join(&name)).ok()?, name)))
            .map(|(text, name)| (name, text))
            .collect();
        let names =
            |text: &str, device: &Kept| text.contains(&device.kind) && text.contains(device.id.as_str());
        for (name, text) in others.iter().filter(|(name, _)| name.starts_with("pcidp-")) {
            let is_garbage = serde_json::from_str(text)
                .is_ok_and(|seen: Seen| seen.devices.iter().all(|device| is_ours(&device.name)));
            if is_garbage && !kept.iter().any(|device| names(text, device)) {
                self.remove(name);
            }
        }
        let mut specs: BTreeMap<(String, &str), Vec<WithNodes>> = BTreeMap::new();
        for device in kept.iter().filter(|device| !others.iter().any(|(_, text)| names(text, device))) {
            let name = cdi::kept_file_name(&device.resource, &device.kind);
            let devices = specs.entry((name, &device.kind)).or_default();
            if !devices.iter().any(|(id, _)| *id == device.id) {
                devices.push((device.id.clone(), device.nodes.clone()));
            }
        }
        specs.retain(|(name, kind), devices| {
            let Some(text) = cdi::spec_of_kind((*kind).to_owned(), devices) else { return false };
            if let Err(error) = put(&self.path, name, &text, 0o644) {
                let path = self.path.join(name);
                tracing::error!(path = %path.display(), %error, "cannot write a CDI spec that a container needs");
            }
            true
        });
        let is_written = |name: &str| specs.keys().any(|(written, _)| written == name);
        for name in self.names().iter().filter(|name| is_kept_by_us(name) && !is_written(name)) {
            self.remove(name);
        }
    }

    /// The specs in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| [".json", ".yaml"].iter().any(|end| name.ends_with(end))).collect()
    }

    fn remove(&self, name: &str) {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "spec of no pool and no container removed"),
            Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove a CDI spec"),
        }
    }
}
