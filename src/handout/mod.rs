//! Floor 1: what a container receives: nodes, variables, device-information files. Pure.

pub mod cdi;
mod device_info;
mod providers;

use std::collections::{BTreeMap, HashSet};

use crate::config::{PoolConfig, Selector};
use crate::model::{Device, DeviceNode, Handout};

pub use cdi::CdiMode;
pub use device_info::device_info;
pub use providers::SharedNodes;

use providers::{Provided, provide};

/// How a pool hands devices over, beside its config.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manner {
    /// Which of the shared nodes exist.
    pub shared: SharedNodes,
    /// Through CDI.
    pub cdi: Option<CdiMode>,
    /// With a view of `/sys/class/uacce` that shows the container's own engines only.
    pub filtered_uacce: bool,
}

/// Makes the answer for one container from devices as they are now, each with the selector object that took it.
///
/// The ids in the variables are sorted as plain strings: the kubelet's own order is arbitrary.
pub fn handout(pool: &PoolConfig, devices: &[(&Device, Option<&Selector>)], manner: Manner) -> Handout {
    let mut devices = devices.to_vec();
    devices.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    let mut handout = Handout::default();
    let mut seen = HashSet::new();
    let mut info: BTreeMap<&str, Provided> = BTreeMap::new();
    for (device, selector) in &devices {
        let mut nodes = Vec::new();
        info.insert(device.id.as_str(), provide(pool, device, *selector, manner.shared, &mut nodes));
        match manner.cdi {
            // The same node is never sent in both ways, and a device without nodes has no place in the spec.
            Some(_) if !nodes.is_empty() => {
                handout.cdi_devices.push(cdi::device_name(&pool.resource, &device.id));
            }
            // A node is listed once however many devices share it.
            _ => handout.nodes.extend(nodes.into_iter().filter(|node| seen.insert(node.container.clone()))),
        }
        if let (true, Some(uacce)) = (manner.filtered_uacce, &device.uacce) {
            handout.uacce_links.extend(uacce.class_link.clone().map(|target| (uacce.name.clone(), target)));
        }
        handout.files.push(device_info(&pool.resource, device, *selector));
    }
    if let Some(mode) = manner.cdi
        && !handout.cdi_devices.is_empty()
    {
        if mode.annotations {
            handout.annotations.extend([cdi::annotation(&pool.resource, &handout.cdi_devices)]);
        }
        if !mode.field {
            handout.cdi_devices.clear();
        }
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

/// The nodes of one device.
pub fn nodes(
    pool: &PoolConfig,
    device: &Device,
    selector: Option<&Selector>,
    shared: SharedNodes,
) -> Vec<DeviceNode> {
    let mut nodes = Vec::new();
    provide(pool, device, selector, shared, &mut nodes);
    nodes
}
