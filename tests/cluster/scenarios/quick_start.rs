//! What a newcomer does first.

use crate::node::Node;
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

/// The folder that a newcomer has, word by word but for the CNI plugin: SR-IOV CNI asks the PF, and there is none here.
pub(crate) fn the_quick_start_gives_a_pod_of_each_kind_its_devices(node: &Node) -> Outcome {
    plugin::serve_as_shipped(node)?;
    let networks = plugin::file("deployments/sriov-crd.yaml")?;
    node.apply(&networks.replace("\"type\": \"sriov\"", "\"type\": \"host-device\""))?;
    for (number, name) in [(1, "testpod1"), (3, "testpod3"), (4, "testpod4")] {
        let pod = plugin::file(&format!("deployments/pod-tc{number}.yaml"))?;
        node.kubectl_with(&["create", "-f", "-"], Some(&pod))?;
        node.wait(&format!("pod/{name} --for=condition=Ready"))?;
    }

    let net = pods::devices(node, "testpod1", "PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE")?;
    must(
        ["0000:17:11.0", "0000:17:11.1"].contains(&net[0].as_str()),
        format!("a VF with a netdev: {net:?}"),
    )?;
    same("interfaces", pods::list(node, "testpod1", "/sys/class/net")?, vec!["eth0", "lo", "net1"])?;

    let vfio = pods::devices(node, "testpod3", "PCIDEVICE_INTEL_COM_INTEL_SRIOV_DPDK")?;
    same("VFs on vfio-pci", vfio, vec!["0000:17:11.2", "0000:17:11.3"])?;
    same("their nodes", pods::list(node, "testpod3", "/dev/vfio")?, vec!["52", "53", "vfio"])?;

    let engine = pods::devices(node, "testpod4", "PCIDEVICE_OPENFUYAO_COM_KAE_HPRE")?;
    let nodes = pods::list(node, "testpod4", "/dev")?;
    let nodes: Vec<&String> = nodes.iter().filter(|name| name.starts_with("hisi")).collect();
    let name = format!("hisi_hpre-{}", engine[0].trim_start_matches("0000:79:00."));
    same("the node of the engine", nodes, vec![&name])?;

    let file =
        format!("/var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-intel_sriov_netdevice-{}-device.json", net[0]);
    let info = node.read(&file)?;
    must(info.contains("\"pf-pci-address\":\"0000:17:00.1\""), info)
}
