//! What a newcomer does first.

use crate::node::{Node, root};
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

/// The lines that the README tells a newcomer to type, once there is a cluster and an image.
fn commands() -> Outcome<Vec<String>> {
    let readme = plugin::file("README.md")?;
    let commands = readme.lines().filter(|line| line.starts_with("    kubectl "));
    Ok(commands.map(|line| line.trim().to_owned()).collect())
}

pub(crate) fn the_quick_start_of_the_readme_works_word_by_word(node: &Node) -> Outcome {
    plugin::remove(node)?;
    let commands = commands()?;
    must(commands.len() >= 4, format!("commands of the README: {commands:?}"))?;
    for command in &commands {
        node.shell(&format!("cd '{}' && {command}", root().display()))?;
    }
    plugin::keep(node, &plugin::shipped()?)?;
    node.wait("pod/testpod1 --for=condition=Ready")?;
    let net = pods::devices(node, "testpod1", "PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE")?;
    must(
        ["0000:17:11.0", "0000:17:11.1"].contains(&net[0].as_str()),
        format!("a VF with a netdev: {net:?}"),
    )?;
    same("interfaces", pods::list(node, "testpod1", "/sys/class/net")?, ["eth0", "lo", "net1"])?;
    let file =
        format!("/var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-intel_sriov_netdevice-{}-device.json", net[0]);
    let info = node.read(&file)?;
    must(info.contains("\"pf-pci-address\":\"0000:17:00.1\""), info)
}

pub(crate) fn the_other_pods_that_ship_get_what_they_ask_for(node: &Node) -> Outcome {
    plugin::serve_as_shipped(node)?;
    node.apply(&plugin::file("deployments/sriov-crd.yaml")?)?;
    for number in [2, 3, 4] {
        node.apply(&plugin::file(&format!("deployments/pod-tc{number}.yaml"))?)?;
    }
    node.wait("pod/testpod2 pod/testpod3 pod/testpod4 --for=condition=Ready")?;

    let interfaces = pods::list(node, "testpod2", "/sys/class/net")?;
    same("interfaces of two networks", interfaces, ["eth0", "lo", "net1", "net2"])?;

    let vfio = pods::devices(node, "testpod3", "PCIDEVICE_INTEL_COM_INTEL_SRIOV_DPDK")?;
    same("VFs on vfio-pci", vfio, ["0000:17:11.2", "0000:17:11.3"])?;
    same("their nodes", pods::list(node, "testpod3", "/dev/vfio")?, ["52", "53", "vfio"])?;

    let engine = pods::devices(node, "testpod4", "PCIDEVICE_OPENFUYAO_COM_KAE_HPRE")?;
    let nodes = pods::list(node, "testpod4", "/dev")?;
    let nodes: Vec<&String> = nodes.iter().filter(|name| name.starts_with("hisi")).collect();
    let name = format!("hisi_hpre-{}", engine[0].trim_start_matches("0000:79:00."));
    same("the node of the engine", nodes, [&name])
}
