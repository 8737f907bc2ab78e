//! NUMA nodes: the kubelet's topology manager with the policy `single-numa-node`, on a host with two sockets.

use serde_json::json;

use crate::node::Node;
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

pub(crate) fn devices_of_one_pod_come_from_one_numa_node_or_it_is_refused(node: &Node) -> Outcome {
    let selectors = json!({"functionTypes": ["vf"], "drivers": ["iavf", "mlx5_core"]});
    plugin::serve_config(node, &json!({"resourceList": [{"resourceName": "both", "selectors": selectors}]}))?;
    let (resource, variable) = ("intel.com/both", "PCIDEVICE_INTEL_COM_BOTH");
    node.wait_for_capacity(resource, 7)?;

    // Four devices are on node 0, and three on node 1.
    pods::create(node, &[pods::pod("five", &[(resource, 5)])])?;
    node.wait("pod/five --for=jsonpath={.status.reason}=TopologyAffinityError")?;
    pods::run(node, &pods::pod("four", &[(resource, 4)]))?;
    let four = pods::devices(node, "four", variable)?;
    must(four.iter().all(|id| id.starts_with("0000:17:01.")), format!("all of node 0: {four:?}"))?;
    pods::run(node, &pods::pod("three", &[(resource, 3)]))?;
    let three = pods::devices(node, "three", variable)?;
    must(three.iter().all(|id| id.starts_with("0000:b1:00.")), format!("all of node 1: {three:?}"))
}

pub(crate) fn the_kubelet_takes_the_devices_that_the_policy_prefers(node: &Node) -> Outcome {
    let pool = |policy: &str, selectors| json!({"resourceName": policy, "allocationPolicy": [policy], "selectors": selectors});
    let pools = [
        pool("packed", json!({"drivers": ["vfio-pci"], "pfNames": ["ens1f0np0", "ens1f1np1"]})),
        pool("spread", json!({"drivers": ["i40e", "igb_uio", "uio_pci_generic"]})),
    ];
    plugin::serve_config(node, &json!({"resourceList": pools}))?;
    node.wait_for_capacity("intel.com/packed", 8)?;
    node.wait_for_capacity("intel.com/spread", 4)?;

    // Two PFs have four VFs each. Of the 56 ways to take three of eight, eight keep to one PF.
    pods::run(node, &pods::pod("three", &[("intel.com/packed", 3)]))?;
    let three = pods::devices(node, "three", "PCIDEVICE_INTEL_COM_PACKED")?;
    same("three of one PF", three, ["0000:17:01.4", "0000:17:01.5", "0000:17:01.6"])?;
    pods::run(node, &pods::pod("four", &[("intel.com/packed", 4)]))?;
    let four = pods::devices(node, "four", "PCIDEVICE_INTEL_COM_PACKED")?;
    same("all of the other PF", four, (0..4).map(|vf| format!("0000:17:11.{vf}")).collect::<Vec<_>>())?;

    // One function of each of two cards.
    pods::run(node, &pods::pod("two", &[("intel.com/spread", 2)]))?;
    let two = pods::devices(node, "two", "PCIDEVICE_INTEL_COM_SPREAD")?;
    same("one of each card", two, ["0000:65:00.0", "0000:67:00.0"])
}
