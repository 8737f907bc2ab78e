//! Registration through the kubelet's registry of plugins.

use crate::node::{Node, root};
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

pub(crate) fn through_the_kubelet_s_registry_a_pod_gets_its_devices(node: &Node) -> Outcome {
    let overlay = root().join("deployments/kustomize/overlays/watcher");
    let manifests = node.kubectl(&format!("kustomize {}", overlay.display()))?;
    plugin::serve(node, &manifests)?;
    node.wait_for_capacity("intel.com/intel_sriov_dpdk", 2)?;
    let sockets = node.shell("ls /var/lib/kubelet/plugins_registry")?;
    // Without an @ in its name, the kubelet's first question is refused for ever by HTTP/2.
    must(sockets.lines().count() >= 3, format!("a socket for each pool: {sockets}"))?;
    must(sockets.lines().all(|name| name.contains('@')), format!("an @ in each name: {sockets}"))?;
    pods::run(node, &pods::pod("user", &[("intel.com/intel_sriov_dpdk", 2)]))?;
    same("nodes", pods::list(node, "user", "/dev/vfio")?, ["52", "53", "vfio"])?;
    plugin::remove(node)?;
    same("sockets that are left", node.shell("ls /var/lib/kubelet/plugins_registry")?.trim(), "")
}
