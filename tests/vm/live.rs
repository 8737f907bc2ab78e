//! What changes while streams are open, and how soon the kubelet is told. The times are printed, and decide nothing.

use std::time::Instant;

use super::machine::{PF0, PF1};
use super::node::Node;
use super::pools::{KERNEL, VFIO};
use super::{Machine, Outcome, Scenario, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(Iommu, functions_come_and_go_and_no_stream_is_closed),
    scenario!(Iommu, a_function_goes_from_driver_to_driver_and_back),
    scenario!(Iommu, an_adapter_is_unplugged_with_its_functions_and_comes_back),
    scenario!(Iommu, a_pulled_cable_is_told_after_its_patience_and_one_plugged_in_too),
    scenario!(Iommu, an_adapter_that_is_renamed_changes_the_pool),
    scenario!(Iommu, a_storm_of_events_hides_nothing),
];

const NONE: &[&str] = &[];

/// Does something, and tells how long it took until the resource offered these.
fn timed(node: &Node, resource: &str, devices: &[impl AsRef<str>], what: &str) {
    let start = Instant::now();
    node.offers(resource, devices);
    println!("{what}: the kubelet knew {:.3} s later", start.elapsed().as_secs_f32());
}

fn functions_come_and_go_and_no_stream_is_closed(machine: &Machine) -> Outcome {
    let other = machine.make_vfs(PF1, 1)?;
    machine.bind(&other[0], "vfio-pci")?;
    let node = Node::start(&[KERNEL, VFIO]);
    node.offers("vfio", &other);
    let unchanged = node.told("vfio");
    let mut registered = None;
    for count in [4, 0, 7] {
        let vfs = machine.make_vfs(PF0, count)?;
        timed(&node, "kernel", &vfs, &format!("{count} functions"));
        let (registrations, _) = node.told("kernel");
        assert_eq!(*registered.get_or_insert(registrations), registrations, "the stream has stayed");
        machine.remove_vfs(PF0)?;
        timed(&node, "kernel", NONE, "none");
    }
    assert_eq!(node.told("vfio"), unchanged, "a pool that has not changed hears nothing");
    Ok(())
}

fn a_function_goes_from_driver_to_driver_and_back(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF0, 2)?;
    let node = Node::start(&[KERNEL, VFIO]);
    node.offers("kernel", &vfs);
    machine.bind(&vfs[0], "vfio-pci")?;
    timed(&node, "vfio", &vfs[..1], "on vfio-pci");
    node.offers("kernel", &vfs[1..]);
    machine.probe(&vfs[0])?;
    timed(&node, "kernel", &vfs, "on igbvf again");
    node.offers("vfio", NONE);
    assert!(node.allocate("kernel", &[&vfs[0]]).unwrap().devices.is_empty());
    Ok(())
}

fn an_adapter_is_unplugged_with_its_functions_and_comes_back(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF0, 3)?;
    let stays = machine.make_vfs(PF1, 1)?;
    let node = Node::start(&[KERNEL]);
    node.offers("kernel", &[vfs.as_slice(), &stays].concat());
    machine.unplug(PF0)?;
    timed(&node, "kernel", &stays, "unplugged");
    let refusal = node.allocate("kernel", &[&vfs[0]]).unwrap_err().to_string();
    assert!(refusal.contains(&vfs[0]), "{refusal}");
    machine.plug_in()?;
    let vfs = machine.make_vfs(PF0, 3)?;
    timed(&node, "kernel", &[vfs.as_slice(), &stays].concat(), "plugged in, three functions made");
    Ok(())
}

fn a_pulled_cable_is_told_after_its_patience_and_one_plugged_in_too(machine: &Machine) -> Outcome {
    machine.up(PF0)?;
    let vfs = machine.make_vfs(PF0, 2)?;
    // Making them takes the carrier of the adapter away for half a second.
    machine.up(PF0)?;
    let pool = |health: &str| format!(r#""selectors": {{"rootDevices": ["{PF0}"]}}, "health": {{{health}}}"#);
    let judged = pool(r#""link": "carrier", "downAfter": "4s", "upAfter": "1s""#);
    let node = Node::start(&[("judged", &judged)]);
    node.offers("judged", &vfs);
    machine.cable(PF0, "net0", false)?;
    timed(&node, "judged", NONE, "pulled, and four seconds of patience");
    machine.cable(PF0, "net0", true)?;
    timed(&node, "judged", &vfs, "plugged in, and one second of patience");
    // A flicker is shorter than the patience.
    machine.cable(PF0, "net0", false)?;
    machine.cable(PF0, "net0", true)?;
    machine.remove_vfs(PF0)?;
    node.offers("judged", NONE);
    assert_eq!(node.log().matches("has no carrier").count(), 1, "{}", node.log());
    Ok(())
}

fn an_adapter_that_is_renamed_changes_the_pool(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF0, 2)?;
    let before = machine.netdev(PF0)?;
    let named = format!(r#""selectors": {{"pfNames": ["{before}#0"]}}"#);
    let node = Node::start(&[("named", &named)]);
    node.offers("named", &vfs[..1]);
    machine.ip(&format!("link set {before} down"))?;
    machine.ip(&format!("link set {before} name uplink0"))?;
    timed(&node, "named", NONE, "renamed");
    machine.ip(&format!("link set uplink0 name {before}"))?;
    timed(&node, "named", &vfs[..1], "renamed back");
    Ok(())
}

fn a_storm_of_events_hides_nothing(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF1, 7)?;
    let node = Node::start(&[KERNEL]);
    node.offers("kernel", &vfs);
    let lists = node.told("kernel").1;
    let left: Vec<&String> = vfs.iter().filter(|vf| **vf != vfs[3]).collect();
    let netdevs: Result<Vec<_>, _> =
        left.iter().map(|vf| Ok((*vf, format!("net/{}/uevent", machine.netdev(vf)?)))).collect();
    let netdevs = netdevs?;
    let storm = || -> Outcome {
        for _ in 0..300 {
            for (vf, netdev) in &netdevs {
                machine.write(vf, "uevent", "change")?;
                machine.write(vf, netdev, "change")?;
            }
        }
        Ok(())
    };
    storm()?;
    machine.bind(&vfs[3], "vfio-pci")?;
    storm()?;
    timed(&node, "kernel", &left, "after some thousand events");
    assert_eq!(node.told("kernel").1, lists + 1, "one change is one list");
    Ok(())
}
