//! In a virtual machine with real SR-IOV adapters: what a recorded host cannot do.

use std::fs;

use serde_json::json;

use crate::node::Node;
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

const PF: &str = "0000:21:00.0";
const NET: &str = "example.com/vf_net";
const VFIO: &str = "example.com/vf_vfio";

/// Four VFs, of which two are on vfio-pci, and our DaemonSet.
fn serve(node: &Node) -> Outcome {
    // An igbvf netdev opens only while that of its PF is up.
    node.shell(&format!(
        "cd /sys/bus/pci/devices
         [ $(cat {PF}/sriov_numvfs) = 0 ] || exit 0
         ip link set $(ls {PF}/net) up
         echo 4 > {PF}/sriov_numvfs
         for vf in 0000:21:10.0 0000:21:10.2; do
           echo $vf > $vf/driver/unbind
           echo vfio-pci > $vf/driver_override
           echo $vf > /sys/bus/pci/drivers_probe
         done"
    ))?;
    let pool = |name: &str, selectors| json!({"resourceName": name, "resourcePrefix": "example.com", "selectors": selectors});
    let pools = [
        pool("vf_net", json!({"drivers": ["igbvf"], "rootDevices": [PF]})),
        pool("vf_vfio", json!({"drivers": ["vfio-pci"]})),
    ];
    plugin::serve_config(node, &json!({"resourceList": pools}))?;
    node.wait_for_capacity(NET, 2)?;
    node.wait_for_capacity(VFIO, 2)
}

pub(crate) fn in_a_virtual_machine_the_netdev_of_a_real_function_moves_in_and_out(node: &Node) -> Outcome {
    serve(node)?;
    pods::create(node, &[pods::network("real", NET)])?;
    pods::run(node, &pods::pod_with_networks("holder", &[(NET, 1)], "real"))?;
    let id = pods::devices(node, "holder", "PCIDEVICE_EXAMPLE_COM_VF_NET")?.remove(0);
    let status = pods::network_status(node, "holder")?;
    let told = status.iter().filter_map(|network| network["device-info"]["pci"]["pci-address"].as_str());
    same("the address in network-status", told.collect::<Vec<_>>(), [id.as_str()])?;
    // The pod's own sysfs is a real one: the netdev belongs to the function.
    let place = node.kubectl("exec holder -- ls -l /sys/class/net/net1/device")?;
    must(place.contains(&id), format!("net1 is the netdev of {id}: {place}"))?;
    let netdevs = format!("ls /sys/bus/pci/devices/{id}/net");
    same("netdevs of the function on the node", node.shell(&netdevs)?.trim(), "")?;
    same("capacity", node.capacity(NET)?, "2")?;

    pods::delete(node, "holder")?;
    must(!node.shell(&netdevs)?.trim().is_empty(), "the netdev is back")?;
    same("capacity", node.capacity(NET)?, "2")
}

pub(crate) fn in_a_virtual_machine_a_pod_opens_its_vfio_group(node: &Node) -> Outcome {
    serve(node)?;
    let mut pod = pods::pod("driver", &[(VFIO, 1)]);
    pod["spec"]["volumes"] = json!([{"name": "program", "hostPath": {"path": "/run/open-vfio"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "program", "mountPath": "/bin/open-vfio"}]);
    pods::run(node, &pod)?;
    let id = pods::devices(node, "driver", "PCIDEVICE_EXAMPLE_COM_VF_VFIO")?.remove(0);
    let nodes = pods::list(node, "driver", "/dev/vfio")?;
    let group = fs::read_link(format!("/sys/bus/pci/devices/{id}/iommu_group"));
    let group = group.map_err(crate::outcome::harness("no IOMMU group"))?;
    let group = group.file_name().unwrap_or_default().to_string_lossy().into_owned();
    same("nodes", &nodes, &vec![group.clone(), "vfio".to_owned()])?;
    let said = node.kubectl(&format!("exec driver -- open-vfio /dev/vfio/{group} {id}"))?;
    must(!said.trim().is_empty(), "the program in the pod says that it opened the device")
}
