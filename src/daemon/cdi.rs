//! CDI specs on disk.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::files::put;
use crate::handout::{CdiMode, SharedNodes, cdi, nodes};
use crate::model::DeviceId;
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
