//! A kubelet that dies.

use std::collections::BTreeSet;

use crate::node::{Node, until};
use crate::outcome::{Outcome, same};
use crate::scenarios::books;
use crate::{plugin, pods};

const RESOURCE: &str = "intel.com/vf_vfio";
const VARIABLE: &str = "PCIDEVICE_INTEL_COM_VF_VFIO";

pub(crate) fn a_killed_kubelet_finds_its_devices_again_and_gives_none_twice(node: &Node) -> Outcome {
    plugin::serve_eight_vfs(node)?;
    pods::run(node, &pods::pod("before", &[(RESOURCE, 2)]))?;
    let container = ".status.containerStatuses[0]['containerID','restartCount']";
    let same_container = node.get("pod before", container)?;

    node.shell("kill -9 $(cat /run/cluster/pid/kubelet)")?;
    // One that answers now is the new one.
    node.shell("while kill -0 $(cat /run/cluster/pid/kubelet) 2>/dev/null; do sleep 0.05; done; rm /var/lib/kubelet/pod-resources/kubelet.sock")?;
    node.shell(
        "cd /run/cluster; setsid sh kubelet.sh >> log/kubelet.log 2>&1 < /dev/null & echo $! > /run/cluster/pid/kubelet",
    )?;
    until("the devices are back", || Ok(books::allocatable(node, RESOURCE).map_or(0, |ids| ids.len()) == 4))?;
    pods::run(node, &pods::pod("after", &[(RESOURCE, 2)]))?;
    same("the container of the first pod", node.get("pod before", container)?, same_container)?;
    let mut given = pods::devices(node, "before", VARIABLE)?;
    given.extend(pods::devices(node, "after", VARIABLE)?);
    same("devices of both pods", given.into_iter().collect::<BTreeSet<_>>().len(), 4)?;
    node.wait_for_capacity(RESOURCE, 4)
}
