//! From the Go plugin to ours and back, while pods run. It stands here with its names of sockets and its way to register
//! (`tests/go/plugin`), for it is no module that can be built.

use std::collections::BTreeSet;
use std::fs;

use crate::node::{Node, limit};
use crate::outcome::{Failure, Outcome, harness, must, same};
use crate::plugin::{self, Watch};
use crate::pods;
use crate::program::Program;

const RESOURCE: &str = "intel.com/vf_vfio";
const VARIABLE: &str = "PCIDEVICE_INTEL_COM_VF_VFIO";
const DEVICES: &str = "0000:11:01.0 0000:11:01.2 0000:11:01.4 0000:11:01.6";
const SOCKETS: &str = "/var/lib/kubelet/device-plugins";

/// Starts what stands for the Go plugin.
fn start(node: &Node) -> Outcome {
    node.shell(&format!(
        "setsid /run/tmp/plugin {SOCKETS} {RESOURCE} {DEVICES} > /run/tmp/go-plugin.log 2>&1 < /dev/null & echo $! > /run/tmp/go-plugin"
    ))?;
    node.wait_for_capacity(RESOURCE, 4)
}

/// Ends it so that its socket stays behind.
fn kill(node: &Node) -> Outcome {
    node.shell("kill -9 $(cat /run/tmp/go-plugin)").map(drop)
}

pub(crate) fn from_the_go_plugin_to_ours_and_back_no_device_is_lost_or_given_twice(node: &Node) -> Outcome {
    let program = Program::build("plugin").ok_or_else(|| Failure::Harness("no Go".to_owned()))?;
    // The node has a folder of its own for temporary files.
    let there = node.at("/run/tmp/plugin");
    fs::copy(program.command().get_program(), there).map_err(harness("cannot write into the node"))?;
    plugin::remove(node)?;
    start(node)?;
    pods::run(node, &pods::pod("of-the-old", &[(RESOURCE, 1)]))?;
    let container = ".status.containerStatuses[0]['containerID','restartCount']";
    let same_container = node.get("pod of-the-old", container)?;

    let watch = Watch::begin(node, RESOURCE)?;
    let ours = plugin::for_eight_vfs()?;
    node.apply(&ours)?;
    plugin::keep(node, &ours)?;
    node.kubectl(&format!("-n kube-system rollout status daemonset --timeout={}s", limit()))?;
    kill(node)?;
    pods::run(node, &pods::pod("of-the-new", &[(RESOURCE, 1)]))?;
    let stale = format!("{SOCKETS}/{}.sock", RESOURCE.replace('/', "_"));
    must(node.shell(&format!("[ ! -e {stale} ]")).is_ok(), "the socket that was left behind is gone")?;
    same("numbers of devices on the way to ours", watch.end()?, BTreeSet::from(["4".to_owned()]))?;

    plugin::remove(node)?;
    start(node)?;
    pods::run(node, &pods::pod("of-the-old-again", &[(RESOURCE, 1)]))?;
    let mut given = BTreeSet::new();
    for name in ["of-the-old", "of-the-new", "of-the-old-again"] {
        given.extend(pods::devices(node, name, VARIABLE)?);
    }
    kill(node)?;
    same("devices of three pods", given.len(), 3)?;
    same("the first container", node.get("pod of-the-old", container)?, same_container)
}
