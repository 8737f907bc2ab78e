//! What a newcomer does first.

use crate::node::Node;
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

pub(crate) fn the_quick_start_works_word_by_word(node: &Node) -> Outcome {
    plugin::serve_as_shipped(node)?;
    pods::run(node, &pods::pod("first", &[("intel.com/intel_sriov_dpdk", 1), ("openfuyao.com/kae.hpre", 2)]))?;
    let ids = pods::devices(node, "first", "PCIDEVICE_INTEL_COM_INTEL_SRIOV_DPDK")?;
    same("devices", ids.len(), 1)?;
    let group = match ids[0].as_str() {
        "0000:17:11.2" => "52",
        "0000:17:11.3" => "53",
        other => return must(false, format!("{other} is no device of the pool")),
    };
    same("nodes", pods::list(node, "first", "/dev/vfio")?, vec![group, "vfio"])?;
    let engines = pods::devices(node, "first", "PCIDEVICE_OPENFUYAO_COM_KAE_HPRE")?;
    same("engines", engines, vec!["0000:79:00.1", "0000:79:00.2"])?;
    let nodes = pods::list(node, "first", "/dev")?;
    let nodes: Vec<&String> = nodes.iter().filter(|name| name.starts_with("hisi")).collect();
    same("nodes of the engines", nodes, vec!["hisi_hpre-1", "hisi_hpre-2"])?;
    let file = format!("/var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-intel_sriov_dpdk-{}-device.json", ids[0]);
    let info = node.read(&file)?;
    must(info.contains("\"pf-pci-address\":\"0000:17:00.1\""), info)
}
