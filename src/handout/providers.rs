//! Nodes, and the entries of the `…_INFO` variable that name them.
//!
//! Providers and keys are the union of what the Go plugin's documentation shows and what its releases write. Only what
//! is really handed over is named.

use std::collections::BTreeMap;

use crate::config::{PoolConfig, Selector, VfioMode};
use crate::model::{Device, DeviceNode, Rdma, Vdpa, VdpaType, Vfio};

/// Nodes that belong to no device and may be missing on a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedNodes {
    /// `/dev/vhost-net` exists.
    pub vhost_net: bool,
    /// `/dev/net/tun` exists.
    pub tun: bool,
}

/// `{provider: {key: value}}`.
pub(super) type Provided = BTreeMap<&'static str, BTreeMap<String, String>>;

const VFIO: &str = "/dev/vfio/vfio";
const IOMMUFD: &str = "/dev/iommu";
const VHOST_NET: &str = "/dev/vhost-net";
const TUN: &str = "/dev/net/tun";

/// Adds the nodes of a device to `nodes` and returns what is told of them.
pub(super) fn provide(
    pool: &PoolConfig,
    device: &Device,
    selector: Option<&Selector>,
    shared: SharedNodes,
    nodes: &mut Vec<DeviceNode>,
) -> Provided {
    let mut info = Info(Provided::new());
    info.add("generic", "deviceID", device.id.as_str());
    for (key, value) in pool.additional_info.of(&device.id) {
        info.add("extra", key, value);
        info.add("extraInfo", key, value);
    }
    if let Some(vfio) = &device.vfio {
        provide_vfio(pool.vfio, vfio, &mut info, nodes);
    }
    if let Some(number) = device.uio {
        let node = format!("/dev/uio{number}");
        info.add("uio", "mount", &node);
        nodes.push(DeviceNode::same(node));
    }
    if let Some(uacce) = &device.uacce {
        info.add("uacce", "name", &uacce.name);
        info.add("uacce", "mount", &uacce.node());
        info.add("uacce", "algorithms", &uacce.algorithms.join(","));
        if let Some(api) = &uacce.api {
            info.add("uacce", "api", api);
        }
        nodes.push(DeviceNode::same(uacce.node()));
    }
    let Some(selector) = selector else { return info.0 };
    if let (true, Some(rdma)) = (selector.is_rdma, &device.rdma) {
        info.add("rdma", "rdma_dev", &rdma.devices.join(","));
        for (key, names) in [("issm", &rdma.issm), ("umad", &rdma.umad), ("uverbs", &rdma.uverbs)] {
            let paths: Vec<String> = names.iter().map(|name| format!("/dev/infiniband/{name}")).collect();
            if !paths.is_empty() {
                info.add("rdma", key, &paths.join(","));
            }
            nodes.extend(paths.into_iter().map(DeviceNode::same));
        }
        info.add("rdma", "rdma_cm", Rdma::CONNECTION_MANAGER);
        nodes.push(DeviceNode::same(Rdma::CONNECTION_MANAGER));
    }
    if let (Some(VdpaType::Vhost), Some(node)) =
        (selector.vdpa_type, device.vdpa.as_deref().and_then(Vdpa::node))
    {
        info.add("vdpa", "mount", &node);
        nodes.push(DeviceNode::same(node));
    }
    if selector.need_vhost_net {
        for (exists, key, path) in
            [(shared.vhost_net, "net-mount", VHOST_NET), (shared.tun, "tun-mount", TUN)]
        {
            if exists {
                info.add("vhost", key, path);
                nodes.push(DeviceNode::same(path));
            }
        }
    }
    info.0
}

/// The group, the character device of iommufd, or both.
fn provide_vfio(mode: VfioMode, vfio: &Vfio, info: &mut Info, nodes: &mut Vec<DeviceNode>) {
    let cdev = vfio.cdev_node().filter(|_| mode != VfioMode::Group);
    if mode != VfioMode::Iommufd {
        let group = DeviceNode { host: vfio.host_node(), container: vfio.container_node() };
        for (key, value) in [
            ("mount", VFIO),
            ("vfio-mount", VFIO),
            ("dev-mount", &group.container),
            ("vfio-dev-mount", &group.container),
        ] {
            info.add("vfio", key, value);
        }
        nodes.extend([DeviceNode::same(VFIO), group]);
    }
    if let Some(cdev) = cdev {
        info.add("vfio", "iommufd-mount", IOMMUFD);
        info.add("vfio", "cdev-mount", &cdev);
        nodes.extend([DeviceNode::same(IOMMUFD), DeviceNode::same(cdev)]);
    }
}

struct Info(Provided);

impl Info {
    fn add(&mut self, provider: &'static str, key: &str, value: &str) {
        self.0.entry(provider).or_default().insert(key.to_owned(), value.to_owned());
    }
}
