//! More is wanted than there is.

use crate::node::Node;
use crate::outcome::{Failure, Outcome, same};
use crate::{plugin, pods};

const RESOURCE: &str = "intel.com/vf_vfio";
const VARIABLE: &str = "PCIDEVICE_INTEL_COM_VF_VFIO";

pub(crate) fn of_two_pods_that_want_the_last_device_one_waits_until_it_is_free(node: &Node) -> Outcome {
    plugin::serve_eight_vfs(node)?;
    pods::run(node, &pods::pod("three", &[(RESOURCE, 3)]))?;
    pods::create(node, &[pods::pod("one", &[(RESOURCE, 1)]), pods::pod("other", &[(RESOURCE, 1)])])?;
    // The scheduler has spoken of both.
    let scheduled = ".status.conditions[?(@.type==\"PodScheduled\")].status";
    node.wait(&format!("pod/one pod/other --for=jsonpath={{{scheduled}}}"))?;
    let (winner, loser) = match node.get("pod one", scheduled)?.as_str() {
        "True" => ("one", "other"),
        _ => ("other", "one"),
    };
    node.wait(&format!("pod/{winner} --for=condition=Ready"))?;
    same("the other", node.get(&format!("pod {loser}"), ".status.phase")?, "Pending")?;
    let freed = pods::devices(node, winner, VARIABLE)?;
    pods::delete(node, winner)?;
    node.wait(&format!("pod/{loser} --for=condition=Ready"))?;
    same("the device that was freed", pods::devices(node, loser, VARIABLE)?, freed)
}

pub(crate) fn a_pod_that_asks_for_too_many_stays_pending(node: &Node) -> Outcome {
    plugin::serve_eight_vfs(node)?;
    pods::create(node, &[pods::pod("greedy", &[(RESOURCE, 5)])])?;
    node.wait("pod/greedy --for=jsonpath={.status.conditions[0].reason}=Unschedulable")?;
    let why = node.get("pod greedy", ".status.conditions[0].message")?;
    match why.contains("Insufficient intel.com/vf_vfio") {
        true => Ok(()),
        false => Err(Failure::Product(why)),
    }
}
