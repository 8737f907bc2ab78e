//! What changes while pods run: the config, and the machine.

use std::time::Instant;

use serde_json::{Value, json};

use crate::node::{Node, until};
use crate::outcome::{Failure, Outcome, must, same};
use crate::plugin::{self, pool};
use crate::pods;

const RESOURCE: &str = "intel.com/vf_vfio";
const VARIABLE: &str = "PCIDEVICE_INTEL_COM_VF_VFIO";

/// Gives the plugin another text in its ConfigMap, as `kubectl edit` would.
fn edit(node: &Node, text: &str) -> Outcome {
    let patch = json!({"data": {"config.json": text}}).to_string();
    node.kubectl_with(&["-n", "kube-system", "patch", "configmap", "sriovdp-config", "-p", &patch], None)
        .map(drop)
}

/// What the plugin tells of itself, asked as a person would.
fn status(node: &Node) -> Outcome<Value> {
    let text =
        node.kubectl("-n kube-system exec daemonset/kube-sriov-device-plugin -- pcidp status -o json")?;
    serde_json::from_str(&text).map_err(|error| Failure::Product(format!("no JSON: {error}: {text}")))
}

/// Moves functions of the booted host out of the kernel's list, or back. No kernel tells of it, so the plugin is asked to look.
fn take(node: &Node, addresses: &[&str], away: bool) -> Outcome {
    let (here, there) = ("/sys/bus/pci/devices", "/sys/bus/pci/away");
    let (from, to) = if away { (here, there) } else { (there, here) };
    let names = addresses.join(" ");
    node.shell(&format!("mkdir -p {there}; cd {from}; mv {names} {to}/; kill -HUP $(pidof pcidp)")).map(drop)
}

pub(crate) fn a_config_that_is_edited_is_followed_and_a_bad_edit_changes_nothing_and_is_seen(
    node: &Node,
) -> Outcome {
    plugin::serve_eight_vfs(node)?;
    let process = node.shell("pidof pcidp")?;
    let good = json!({"resourceList": [pool("vf_net", "iavf"), pool("vf_late", "vfio-pci")]}).to_string();
    edit(node, &good)?;
    node.wait_for_capacity("intel.com/vf_late", 4)?;
    node.wait_for_capacity(RESOURCE, 0)?;
    let hash = status(node)?["config"]["hash"].clone();

    edit(node, r#"{"resourceList": [{"resourceName": "vf_net", "selectors": {"driverz": 1}}"#)?;
    until("the bad edit is seen in `status`", || {
        let told = status(node)?["config"]["error"].clone();
        Ok(told.as_str().is_some_and(|why| why.contains("config.json")))
    })?;
    same("the config that is served", status(node)?["config"]["hash"].clone(), hash)?;
    for resource in ["intel.com/vf_net", "intel.com/vf_late"] {
        same(resource, node.capacity(resource)?, "4".to_owned())?;
    }
    pods::run(node, &pods::pod("meanwhile", &[("intel.com/vf_late", 1)]))?;

    edit(node, &good)?;
    until("the error is over in `status`", || Ok(status(node)?["config"]["error"].is_null()))?;
    same("the process", node.shell("pidof pcidp")?, process)?;
    plugin::remove(node)
}

pub(crate) fn a_device_that_vanishes_under_a_pod_is_offered_no_more_until_it_is_back(node: &Node) -> Outcome {
    plugin::serve_eight_vfs(node)?;
    pods::run(node, &pods::pod("holder", &[(RESOURCE, 1)]))?;
    let held = pods::devices(node, "holder", VARIABLE)?;
    let container = ".status.containerStatuses[0]['containerID','restartCount']";
    let same_container = node.get("pod holder", container)?;

    take(node, &[&held[0]], true)?;
    node.wait_for_capacity(RESOURCE, 3)?;
    // The holder's request still counts against what is left.
    let outcome = pods::run(node, &pods::pod("other", &[(RESOURCE, 2)]));
    take(node, &[&held[0]], false)?;
    outcome?;
    must(!pods::devices(node, "other", VARIABLE)?.contains(&held[0]), "the lost one is not among them")?;
    node.wait_for_capacity(RESOURCE, 4)?;
    same("the container of the holder", node.get("pod holder", container)?, same_container)?;
    pods::delete(node, "holder")?;
    pods::run(node, &pods::pod("next", &[(RESOURCE, 2)]))?;
    must(
        pods::devices(node, "next", VARIABLE)?.contains(&held[0]),
        "the device that came back is given again",
    )
}

pub(crate) fn a_pool_shrinks_to_nothing_and_comes_back_and_the_node_agrees(node: &Node) -> Outcome {
    plugin::serve_eight_vfs(node)?;
    let all = ["0000:11:01.0", "0000:11:01.2", "0000:11:01.4", "0000:11:01.6"];
    for (away, count) in [(true, 0), (false, 4)] {
        take(node, &all, away)?;
        // Devices that are gone are unhealthy at once, and off the list ten seconds later.
        let asked = Instant::now();
        node.wait_for_capacity(RESOURCE, count)?;
        println!("    the node agrees on {count} devices after {:.1} s", asked.elapsed().as_secs_f32());
        let described = node.kubectl("describe node node1")?;
        let line = described.lines().rev().find(|line| line.trim_start().starts_with(RESOURCE));
        must(line.is_some(), format!("{RESOURCE} in `describe node`:\n{described}"))?;
    }
    node.wait_for_capacity("intel.com/vf_net", 4)
}
