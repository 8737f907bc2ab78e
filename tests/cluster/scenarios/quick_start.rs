//! What a newcomer does first.

use crate::node::Node;
use crate::outcome::{Outcome, must, same};
use crate::plugin;

pub(crate) fn the_quick_start_works_word_by_word(node: &Node) -> Outcome {
    plugin::serve(node, &(plugin::own_manifest("configMap")? + "---\n" + &plugin::own_manifest("sriovdp-daemonset")?))?;
    node.wait_for_capacity("intel.com/sriov_net", 2)?;
    node.wait_for_capacity("intel.com/sriov_vfio", 2)?;
    node.wait_for_capacity("openfuyao.com/kae.hpre", 2)?;
    node.apply(&plugin::own_manifest("pod-tc1")?)?;
    node.wait("pod/testpod1 --for=condition=Ready")?;
    let variables = node.kubectl("exec testpod1 -- env")?;
    let id = variables.lines().find_map(|line| line.strip_prefix("PCIDEVICE_INTEL_COM_SRIOV_VFIO="));
    let id = id.unwrap_or_default();
    must(["0000:17:11.2", "0000:17:11.3"].contains(&id), format!("a device of the pool, not `{id}`"))?;
    let group = if id.ends_with('2') { "52" } else { "53" };
    let nodes = node.kubectl("exec testpod1 -- ls /dev/vfio")?;
    same("nodes", nodes.split_whitespace().collect::<Vec<_>>(), vec![group, "vfio"])
}
