//! The node's own uplink is never offered, whatever lies between the default route and the adapter.

use serde_json::Value;

use super::machine::{PF0, PF1, PF2, pcidp};
use super::node::Node;
use super::{Machine, Outcome, Scenario, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(Iommu, a_physical_function_without_virtual_ones),
    scenario!(Iommu, a_physical_function_whose_virtual_ones_stay_on_offer),
    scenario!(Iommu, a_virtual_function),
    scenario!(Iommu, a_bond_of_two),
    scenario!(Iommu, a_vlan_over_a_bridge),
    scenario!(Iommu, a_bridge_over_a_vlan_over_a_bond),
    scenario!(Iommu, ipv6_only),
    scenario!(Iommu, every_hop_of_a_multipath_route),
    scenario!(Iommu, a_route_that_comes_later),
];

/// Every function of the three adapters.
const ALL: (&str, &str) = ("all", r#""selectors": {"vendors": ["8086"], "devices": ["10c9", "10ca"]}"#);

fn a_physical_function_without_virtual_ones(machine: &Machine) -> Outcome {
    let uplink = machine.up(PF0)?;
    machine.default_route(&uplink)?;
    Node::start(&[ALL]).offers("all", &[PF1, PF2]);
    assert_route(PF0, &format!("default via 192.0.2.1 dev {uplink}"));
    Ok(())
}

fn a_physical_function_whose_virtual_ones_stay_on_offer(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF0, 2)?;
    let uplink = machine.up(PF0)?;
    machine.default_route(&uplink)?;
    Node::start(&[ALL]).offers("all", &[PF1, PF2, &vfs[0], &vfs[1]]);
    Ok(())
}

fn a_virtual_function(machine: &Machine) -> Outcome {
    // The virtual one has no carrier for seconds where the physical one was down when it was made.
    machine.up(PF0)?;
    let vfs = machine.make_vfs(PF0, 2)?;
    let uplink = machine.up(&vfs[0])?;
    machine.default_route(&uplink)?;
    Node::start(&[ALL]).offers("all", &[PF1, PF2, &vfs[1]]);
    assert_route(&vfs[0], &uplink);
    Ok(())
}

fn a_bond_of_two(machine: &Machine) -> Outcome {
    bond(machine)?;
    machine.default_route("bond9")?;
    Node::start(&[ALL]).offers("all", &[PF2]);
    for pf in [PF0, PF1] {
        assert_route(pf, &format!("(through bond9 > {})", machine.netdev(pf)?));
    }
    Ok(())
}

fn a_vlan_over_a_bridge(machine: &Machine) -> Outcome {
    let port = machine.up(PF0)?;
    machine.ip("link add br9 type bridge")?;
    machine.ip(&format!("link set {port} master br9"))?;
    machine.ip("link add br9.7 link br9 type vlan id 7")?;
    machine.ip("link set br9 up")?;
    machine.ip("link set br9.7 up")?;
    machine.default_route("br9.7")?;
    Node::start(&[ALL]).offers("all", &[PF1, PF2]);
    assert_route(PF0, &format!("(through br9.7 > br9 > {port})"));
    Ok(())
}

fn a_bridge_over_a_vlan_over_a_bond(machine: &Machine) -> Outcome {
    bond(machine)?;
    machine.ip("link add bond9.7 link bond9 type vlan id 7")?;
    machine.ip("link add br9 type bridge")?;
    machine.ip("link set bond9.7 master br9 up")?;
    machine.ip("link set br9 up")?;
    machine.default_route("br9")?;
    Node::start(&[ALL]).offers("all", &[PF2]);
    assert_route(PF1, &format!("(through br9 > bond9.7 > bond9 > {})", machine.netdev(PF1)?));
    Ok(())
}

fn ipv6_only(machine: &Machine) -> Outcome {
    let uplink = machine.up(PF0)?;
    machine.ip(&format!("-6 route add default via fe80::1 dev {uplink}"))?;
    Node::start(&[ALL]).offers("all", &[PF1, PF2]);
    assert_route(PF0, &format!("default (IPv6) via fe80::1 dev {uplink}"));
    Ok(())
}

fn every_hop_of_a_multipath_route(machine: &Machine) -> Outcome {
    let (first, second) = (machine.up(PF0)?, machine.up(PF1)?);
    machine.ip(&format!("address add 192.0.2.2/24 dev {first}"))?;
    machine.ip(&format!("address add 198.51.100.2/24 dev {second}"))?;
    machine.ip(&format!(
        "route add default nexthop via 192.0.2.1 dev {first} nexthop via 198.51.100.1 dev {second}"
    ))?;
    Node::start(&[ALL]).offers("all", &[PF2]);
    Ok(())
}

fn a_route_that_comes_later(machine: &Machine) -> Outcome {
    let node = Node::start(&[ALL]);
    node.offers("all", &[PF0, PF1, PF2]);
    let uplink = machine.up(PF1)?;
    machine.default_route(&uplink)?;
    node.offers("all", &[PF0, PF2]);
    Ok(())
}

/// `bond9` of the first two adapters, up.
fn bond(machine: &Machine) -> Outcome {
    machine.ip("link add bond9 type bond mode active-backup miimon 100")?;
    for pf in [PF0, PF1] {
        machine.ip(&format!("link set {} master bond9", machine.netdev(pf)?))?;
    }
    machine.ip("link set bond9 up")?;
    machine.carrier("bond9")
}

/// The report says which default route keeps a function away.
fn assert_route(address: &str, part: &str) {
    let report: Value = serde_json::from_str(&pcidp(&["devices", "--output", "json"])).unwrap();
    let devices = report["devices"].as_array().unwrap();
    let device = devices.iter().find(|device| device["id"] == address).unwrap();
    let route = device["defaultRoute"].as_str().unwrap_or("no default route");
    assert!(route.contains(part), "{address} has `{route}`, and not `{part}`");
}
