//! What a container receives.

use std::collections::BTreeMap;

use super::DeviceId;

/// A device node; every node is handed over with `rw`, never with `m`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNode {
    /// Path on the host.
    pub host: String,
    /// Path in the container.
    pub container: String,
}

impl DeviceNode {
    /// A node that has the same path on both sides.
    pub fn same(path: impl Into<String>) -> Self {
        let path = path.into();
        Self { host: path.clone(), container: path }
    }
}

/// A read-only bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path on the host.
    pub host: String,
    /// Path in the container.
    pub container: String,
}

/// A device-information file of the Network Plumbing Working Group, for Multus, DANM and CNI plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfoFile {
    /// The device it tells of.
    pub device: DeviceId,
    /// File name below the `dp` directory.
    pub name: String,
    /// JSON text.
    pub content: String,
}

/// The answer for one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handout {
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// Device nodes, each once, in the order of the devices.
    pub nodes: Vec<DeviceNode>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Devices of the Container Device Interface, by their full name.
    pub cdi_devices: Vec<String>,
    /// Annotations for the container runtime.
    pub annotations: BTreeMap<String, String>,
    /// The container's own view of `/sys/class/uacce`: names and targets of its links. Empty where it sees the host's.
    pub uacce_links: BTreeMap<String, String>,
    /// Files to be written before the answer is sent.
    pub files: Vec<DeviceInfoFile>,
}
