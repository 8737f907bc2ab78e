//! Kunpeng engines, on a recorded Kunpeng 920.

use std::collections::BTreeSet;

use crate::node::Node;
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

const RESOURCE: &str = "openfuyao.com/kae.hpre";
const VARIABLE: &str = "PCIDEVICE_OPENFUYAO_COM_KAE_HPRE";

pub(crate) fn two_pods_see_one_engine_each_and_never_the_other_s(node: &Node) -> Outcome {
    plugin::serve(node, &plugin::shipped()?)?;
    node.wait_for_capacity(RESOURCE, 2)?;
    let mut seen = BTreeSet::new();
    for name in ["one", "other"] {
        pods::run(node, &pods::pod(name, &[(RESOURCE, 1)]))?;
        let ids = pods::devices(node, name, VARIABLE)?;
        same("devices", ids.len(), 1)?;
        let class = pods::list(node, name, "/sys/class/uacce")?;
        let engine = node.shell(&format!("ls /sys/bus/pci/devices/{}/uacce", ids[0]))?;
        same("its view of /sys/class/uacce", &class, &vec![engine.trim().to_owned()])?;
        let nodes = pods::list(node, name, "/dev")?;
        let nodes: Vec<String> = nodes.into_iter().filter(|name| name.starts_with("hisi_")).collect();
        same("its nodes in /dev", &nodes, &class)?;
        // libwd reads on from here.
        let place = node.kubectl(&format!("exec {name} -- cat /sys/class/uacce/{}/algorithms", class[0]))?;
        must(!place.is_empty(), "the engine's algorithms")?;
        seen.extend(class);
    }
    same("engines of both pods", seen, ["hisi_hpre-6", "hisi_hpre-7"].map(str::to_owned).into())
}
