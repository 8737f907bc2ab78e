//! What the stand-in has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::kubelet::api::deviceplugin::{Device, RegisterRequest};
use crate::kubelet::pool::{Advertised, PluginOptions};

/// Every resource that ever asked to be registered, by `prefix/name`.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// By name.
    pub resources: BTreeMap<String, Resource>,
}

impl State {
    /// The resource, or one that never registered.
    pub fn resource(&self, name: &str) -> Resource {
        self.resources.get(name).cloned().unwrap_or_default()
    }

    /// How many devices of the resource could be handed out to new containers, were none held.
    pub fn allocatable(&self, name: &str) -> usize {
        self.resources.get(name).map_or(0, |resource| resource.healthy().count())
    }
}

/// One resource.
#[derive(Debug, Clone, Default)]
pub struct Resource {
    /// Accepted registrations, the oldest first.
    pub registrations: Vec<Registered>,
    /// How many registrations were refused.
    pub refused: usize,
    /// What the plugin answered to `GetDevicePluginOptions`.
    pub options: PluginOptions,
    /// Every list that came, the oldest first.
    pub lists: Vec<Listed>,
    /// Whether there is a connection through which devices can be allocated.
    pub connected: bool,
    /// Devices that containers hold.
    pub held: BTreeSet<String>,
}

/// A registration.
#[derive(Debug, Clone)]
pub struct Registered {
    /// When it was asked for.
    pub at: Instant,
    /// As the plugin sent it.
    pub request: RegisterRequest,
}

/// A list of devices.
#[derive(Debug, Clone)]
pub struct Listed {
    /// When it came.
    pub at: Instant,
    /// In the plugin's order.
    pub devices: Vec<Advertised>,
}

impl Resource {
    /// The latest list.
    pub fn devices(&self) -> &[Advertised] {
        self.lists.last().map_or(&[], |list| &list.devices)
    }

    /// Healthy devices of the latest list; none without a connection, as a kubelet counts.
    pub fn healthy(&self) -> impl Iterator<Item = &Advertised> {
        let devices = if self.connected { self.devices() } else { &[] };
        devices.iter().filter(|device| device.healthy)
    }

    /// Ids of healthy devices that no container holds.
    pub fn free(&self) -> Vec<String> {
        self.healthy().map(|device| device.id.clone()).filter(|id| !self.held.contains(id)).collect()
    }
}

impl From<Device> for Advertised {
    fn from(device: Device) -> Self {
        let nodes = device.topology.map(|topology| topology.nodes).unwrap_or_default();
        Self {
            id: device.id,
            healthy: device.health == "Healthy",
            numa_node: nodes.first().and_then(|node| u32::try_from(node.id).ok()),
        }
    }
}
