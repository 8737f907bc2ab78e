//! The Container Device Interface, with what containerd makes of it.

use std::collections::BTreeSet;
use std::fs;

use pcidp::kubelet::api::deviceplugin::ContainerAllocateResponse;
use prost::Message;
use serde_json::{Value, json};

use crate::node::Node;
use crate::outcome::{Failure, Outcome, harness, must, same};
use crate::{plugin, pods};

/// Three pools of devices with nodes, and one of VFs on their kernel driver. Nothing goes by annotations.
fn serve(node: &Node) -> Outcome {
    let pool = |name: &str, selectors| json!({"resourceName": name, "selectors": selectors});
    let pools = [
        pool("first", json!({"pfNames": ["ens1f0np0"], "drivers": ["vfio-pci"]})),
        pool("second", json!({"pfNames": ["ens1f1np1"], "drivers": ["vfio-pci"]})),
        pool("uio", json!({"drivers": ["igb_uio"]})),
        pool("kernel", json!({"drivers": ["iavf"]})),
    ];
    let manifests = plugin::generated(&json!({"resourceList": pools}), &["--use-cdi"])?;
    let argument = "        - --use-cdi\n";
    must(manifests.contains(argument), "the manifests ask for CDI")?;
    plugin::serve(node, &manifests.replace(argument, &format!("{argument}        - --cdi-mode=field\n")))?;
    for (resource, count) in [("first", 4), ("second", 4), ("uio", 1), ("kernel", 4)] {
        node.wait_for_capacity(&format!("intel.com/{resource}"), count)?;
    }
    Ok(())
}

pub(crate) fn three_pools_in_one_container_hand_over_their_devices_through_cdi(node: &Node) -> Outcome {
    serve(node)?;
    let devices = [("intel.com/first", 1), ("intel.com/second", 2), ("intel.com/uio", 1)];
    pods::run(node, &pods::pod("three-pools", &devices))?;

    let given = pods::variables(node, "three-pools")?;
    let mut groups: Vec<String> = ["FIRST", "SECOND"]
        .iter()
        .flat_map(|pool| given[&format!("PCIDEVICE_INTEL_COM_{pool}")].split(','))
        .map(|id| node.shell(&format!("basename $(readlink /sys/bus/pci/devices/{id}/iommu_group)")))
        .map(|group| group.map(|group| group.trim().to_owned()))
        .collect::<Outcome<_>>()?;
    groups.push("vfio".to_owned());
    groups.sort();
    same("nodes of both vfio pools", pods::list(node, "three-pools", "/dev/vfio")?, groups)?;
    let nodes = pods::list(node, "three-pools", "/dev")?;
    must(nodes.contains(&"uio1".to_owned()), format!("the node of the third pool: {nodes:?}"))?;

    // The kubelet was told names only, and no device.
    for answer in answers(node, "three-pools")? {
        must(answer.devices.is_empty(), format!("no device beside CDI: {:?}", answer.devices))?;
        must(answer.annotations.is_empty(), format!("no annotation: {:?}", answer.annotations))?;
        let names: BTreeSet<&str> = answer.cdi_devices.iter().map(|device| device.name.as_str()).collect();
        must(!names.is_empty(), "a name for CDI")?;
        must(names.iter().all(|name| name.starts_with("intel.com/pcidp-")), format!("{names:?}"))?;
    }
    Ok(())
}

/// The Go plugin leaves such a pool at 0 for ever: it has nothing that a CDI device could be made of.
pub(crate) fn a_pool_of_kernel_drivers_is_served_with_cdi(node: &Node) -> Outcome {
    serve(node)?;
    pods::create(node, &[pods::network("kernel", "intel.com/kernel")])?;
    let pod = pods::pod_with_networks("plain", &[("intel.com/kernel", 1), ("intel.com/first", 1)], "kernel");
    pods::run(node, &pod)?;
    let interfaces = pods::list(node, "plain", "/sys/class/net")?;
    same("interfaces", interfaces, ["eth0", "lo", "net1"])?;
    same("nodes", pods::list(node, "plain", "/dev/vfio")?.len(), 2)
}

/// What the plugin answered for a pod, as the kubelet keeps it.
fn answers(node: &Node, pod: &str) -> Outcome<Vec<ContainerAllocateResponse>> {
    let uid = node.get(&format!("pod {pod}"), ".metadata.uid")?;
    let text = node.read("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")?;
    let checkpoint: Value =
        serde_json::from_str(&text).map_err(|error| harness("the checkpoint")(error.into()))?;
    let entries = checkpoint["Data"]["PodDeviceEntries"].as_array().cloned().unwrap_or_default();
    let mut answers = Vec::new();
    for entry in entries.iter().filter(|entry| entry["PodUID"] == uid.as_str()) {
        let encoded = entry["AllocResp"].as_str().unwrap_or_default();
        node.shell(&format!("echo '{encoded}' | base64 -d > /run/tmp/answer"))?;
        let bytes = fs::read(node.at("/run/tmp/answer")).map_err(harness("cannot read an answer"))?;
        let answer = ContainerAllocateResponse::decode(bytes.as_slice());
        answers.push(answer.map_err(|error| Failure::Product(error.to_string()))?);
    }
    same("pools that answered", answers.len(), 3)?;
    Ok(answers)
}
