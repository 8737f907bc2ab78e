//! Multus and `host-device` move the netdevs of VFs by our ids.

use serde_json::json;

use crate::node::Node;
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

pub(crate) fn multus_moves_netdevs_of_two_pools_into_a_pod_and_they_come_back(node: &Node) -> Outcome {
    let pool = |name: &str, range: &str| json!({"resourceName": name, "selectors": {"pfNames": [format!("ens0f0np0#{range}")], "drivers": ["iavf"]}});
    let config = json!({"resourceList": [pool("blue", "1,3"), pool("red", "5-7")]});
    plugin::serve_config(node, &config)?;
    node.wait_for_capacity("intel.com/blue", 2)?;
    node.wait_for_capacity("intel.com/red", 2)?;
    let before = netdevs(node, "ens0f0v")?;
    same("netdevs of the VFs", before.len(), 4)?;

    let networks = [pods::network("blue", "intel.com/blue"), pods::network("red", "intel.com/red")];
    pods::create(node, &networks)?;
    let pod =
        pods::pod_with_networks("moved", &[("intel.com/blue", 2), ("intel.com/red", 1)], "blue,blue,red");
    pods::run(node, &pod)?;

    let mut ids = pods::devices(node, "moved", "PCIDEVICE_INTEL_COM_BLUE")?;
    ids.extend(pods::devices(node, "moved", "PCIDEVICE_INTEL_COM_RED")?);
    let status = pods::network_status(node, "moved")?;
    let mut told: Vec<&str> =
        status.iter().filter_map(|network| network["device-info"]["pci"]["pci-address"].as_str()).collect();
    told.sort_unstable();
    same("addresses in network-status", told, ids)?;
    let interfaces = pods::list(node, "moved", "/sys/class/net")?;
    same("interfaces of the pod", interfaces, vec!["eth0", "lo", "net1", "net2", "net3"])?;
    same("netdevs that stayed on the node", netdevs(node, "ens0f0v")?.len(), 1)?;
    still_offered(node, &["intel.com/blue", "intel.com/red"])?;

    pods::delete(node, "moved")?;
    same("netdevs after the pod", netdevs(node, "ens0f0v")?, before)?;
    still_offered(node, &["intel.com/blue", "intel.com/red"])?;
    // Nothing but the first list of each pool was ever sent.
    let log = node.shell("cat /var/log/pods/kube-system_*/*/*.log")?;
    let lists = log.lines().filter(|line| line.contains("devices changed")).count();
    must(lists <= 2, format!("the pools never lost a device, yet {lists} lists were sent"))
}

pub(crate) fn a_whole_pf_moves_into_a_pod_and_comes_back(node: &Node) -> Outcome {
    let selectors = json!({"drivers": ["i40e"], "functionTypes": ["pf"]});
    plugin::serve_config(node, &json!({"resourceList": [{"resourceName": "pf", "selectors": selectors}]}))?;
    node.wait_for_capacity("intel.com/pf", 2)?;
    let before = netdevs(node, "ens3f")?;
    same("netdevs of the PFs", &before, &vec!["ens3f0".to_owned(), "ens3f1".to_owned()])?;

    pods::create(node, &[pods::network("whole", "intel.com/pf")])?;
    pods::run(node, &pods::pod_with_networks("holder", &[("intel.com/pf", 1)], "whole"))?;
    let ids = pods::devices(node, "holder", "PCIDEVICE_INTEL_COM_PF")?;
    let netdev = node.shell(&format!("ls /sys/bus/pci/devices/{}/net", ids[0]))?;
    let stayed: Vec<&String> = before.iter().filter(|name| **name != netdev.trim()).collect();
    same("netdevs that stayed on the node", netdevs(node, "ens3f")?.iter().collect::<Vec<_>>(), stayed)?;
    same("interfaces", pods::list(node, "holder", "/sys/class/net")?, ["eth0", "lo", "net1"])?;
    still_offered(node, &["intel.com/pf"])?;

    pods::delete(node, "holder")?;
    same("netdevs after the pod", netdevs(node, "ens3f")?, before)?;
    still_offered(node, &["intel.com/pf"])
}

fn still_offered(node: &Node, resources: &[&str]) -> Outcome {
    for resource in resources {
        same(resource, node.capacity(resource)?, "2")?;
    }
    Ok(())
}

/// The node's netdevs whose names begin so.
fn netdevs(node: &Node, begin: &str) -> Outcome<Vec<String>> {
    let links = node.shell("ip -o link show")?;
    // `4: ens0f0v1@wire11: <BROADCAST…`
    let names = links.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    let names = names.filter(|name| name.starts_with(begin));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    Ok(names)
}
