//! Whether a device can be handed out, as far as the scan shows.

use std::collections::BTreeMap;

use super::Pool;
use crate::config::{PoolConfig, Selector, VfioMode};
use crate::model::{Device, DeviceId, Health};

/// Devices of a pool that became unhealthy for one reason; or, without a reason, that are healthy again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChange {
    /// The reason.
    pub reason: Option<String>,
    /// The devices, sorted.
    pub devices: Vec<DeviceId>,
}

/// What changed in the health of a pool's devices; those that are healthy again come first. A device that is healthy when it
/// appears is no change.
pub fn health_changes(before: &Pool, after: &Pool) -> Vec<HealthChange> {
    let mut changes: BTreeMap<Option<&str>, Vec<DeviceId>> = BTreeMap::new();
    for member in &after.members {
        let earlier = before.of_device(member.device.id.as_str()).map(|member| &member.health);
        let reason = match &member.health {
            Health::Healthy => None,
            Health::Unhealthy(reason) => Some(reason.as_str()),
        };
        if *earlier.unwrap_or(&Health::Healthy) != member.health {
            changes.entry(reason).or_default().push(member.device.id.clone());
        }
    }
    let change =
        |(reason, devices): (Option<&str>, _)| HealthChange { reason: reason.map(str::to_owned), devices };
    changes.into_iter().map(change).collect()
}

/// The first thing that keeps a container from using the device.
///
/// What cannot be read does not make a device unhealthy, and neither does a netdev that has moved into a pod.
pub fn health(device: &Device, pool: &PoolConfig, selector: Option<&Selector>) -> Health {
    let unhealthy = |reason: String| Health::Unhealthy(reason);
    let kernel_driver = device.driver.as_deref().filter(|_| device.vfio.is_none() && device.uio.is_none());
    if let (true, Some(driver), None) = (device.is_kae_engine(), kernel_driver, &device.uacce) {
        return unhealthy(format!("driver {driver} made no uacce node; load it with uacce_mode=1 or 2"));
    }
    if let Some(uacce) = &device.uacce {
        if uacce.isolated {
            return unhealthy(format!("{} is isolated by its driver after errors", uacce.name));
        }
        if let Some(state) = uacce.dev_state.filter(|&state| state != 0) {
            return unhealthy(format!("{} is stopped (dev_state {state})", uacce.name));
        }
    }
    if let Some((vfio, blocked_by)) =
        device.vfio.as_ref().and_then(|vfio| Some((vfio, vfio.blocked_by.as_ref()?)))
    {
        return unhealthy(format!("IOMMU group {} is not viable: {blocked_by} is in it too", vfio.group));
    }
    if let (VfioMode::Iommufd, Some(vfio)) = (pool.vfio, &device.vfio)
        && vfio.cdev.is_none()
    {
        return unhealthy(
            "the kernel has no VFIO character device for it (CONFIG_VFIO_DEVICE_CDEV)".to_owned(),
        );
    }
    let rdma_matters = selector.is_some_and(|selector| selector.is_rdma);
    if let (true, Some(rdma)) = (rdma_matters, &device.rdma)
        && !rdma.devices.is_empty()
        && rdma.uverbs.is_empty()
    {
        return unhealthy(format!("RDMA device {} has no uverbs device", rdma.devices.join(", ")));
    }
    let vdpa_matters = selector.is_some_and(|selector| selector.vdpa_type.is_some());
    let matters = |path: &&String| {
        (rdma_matters || !path.starts_with("/dev/infiniband/"))
            && (vdpa_matters || !path.starts_with("/dev/vhost-vdpa-"))
    };
    match device.absent_nodes.iter().find(matters) {
        Some(path) => unhealthy(format!("{path} does not exist")),
        None => Health::Healthy,
    }
}
