//! Floor 1: what a container receives: nodes, variables, device-information files. Pure.

pub mod cdi;
mod device_info;
mod providers;

use std::collections::{BTreeMap, HashSet};

use crate::config::{PoolConfig, Selector};
use crate::model::{Device, DeviceNode, Handout};

pub use device_info::device_info;
pub use providers::SharedNodes;

use providers::{Provided, provide};

/// Makes the answer for one container from devices as they are now, each with the selector object that took it.
///
/// The ids in the variables are sorted as plain strings: the kubelet's own order is arbitrary.
pub fn handout(pool: &PoolConfig, devices: &[(&Device, Option<&Selector>)], shared: SharedNodes) -> Handout {
    let mut devices = devices.to_vec();
    devices.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    let mut handout = Handout::default();
    let mut seen = HashSet::new();
    let mut info: BTreeMap<&str, Provided> = BTreeMap::new();
    for (device, selector) in &devices {
        let mut nodes = Vec::new();
        info.insert(device.id.as_str(), provide(pool, device, *selector, shared, &mut nodes));
        // A node is listed once however many devices share it.
        handout
            .nodes
            .extend(nodes.into_iter().filter(|node: &DeviceNode| seen.insert(node.container.clone())));
        handout.files.push(device_info(&pool.resource, device, *selector));
    }
    let ids: Vec<&str> = devices.iter().map(|(device, _)| device.id.as_str()).collect();
    let values = [("", ids.join(",")), ("_INFO", serde_json::json!(info).to_string())];
    for name in [pool.resource.variable(), pool.resource.posix_variable()] {
        for (suffix, value) in &values {
            handout.variables.insert(format!("{name}{suffix}"), value.clone());
        }
    }
    handout
}
