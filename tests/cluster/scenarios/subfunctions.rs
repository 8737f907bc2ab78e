//! Subfunctions, on a recorded BlueField.

use serde_json::{Value, json};

use crate::node::Node;
use crate::outcome::{Failure, Outcome, same};
use crate::{plugin, pods};

pub(crate) fn a_pod_gets_a_subfunction_by_its_auxiliary_name(node: &Node) -> Outcome {
    let selectors = json!({"auxTypes": ["sf"], "pfNames": ["p0#88"]});
    let pool = json!({"resourceName": "sf", "resourcePrefix": "nvidia.com", "deviceType": "auxNetDevice", "selectors": selectors});
    plugin::serve_config(node, &json!({"resourceList": [pool]}))?;
    node.wait_for_capacity("nvidia.com/sf", 1)?;
    pods::create(node, &[pods::network("sf", "nvidia.com/sf")])?;
    pods::run(node, &pods::pod_with_networks("user", &[("nvidia.com/sf", 1)], "sf"))?;

    let id = "mlx5_core.sf.3";
    same("devices", pods::devices(node, "user", "PCIDEVICE_NVIDIA_COM_SF")?, [id])?;
    let file = format!("/var/run/k8s.cni.cncf.io/devinfo/dp/nvidia.com-sf-{id}-device.json");
    let info: Value =
        serde_json::from_str(&node.read(&file)?).map_err(|error| Failure::Product(error.to_string()))?;
    same("its address for CNI plugins", &info["pci"]["pci-address"], &json!(id))?;
    same("interfaces", pods::list(node, "user", "/sys/class/net")?, ["eth0", "lo", "net1"])?;
    pods::delete(node, "user")?;
    node.shell("ip link show enp3s0f0s88")?;
    same("capacity", node.capacity("nvidia.com/sf")?, "1")
}
