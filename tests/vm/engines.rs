//! Kunpeng engines on the kernel's own uacce core: classes, attributes, nodes and numbers are the kernel's, only the
//! engines behind them are made up (`guest/kaesim`).

use std::fs::File;

use super::machine::{PF0, PF1, PF2, PLAIN, names};
use super::node::{Node, node_of};
use super::pools::{group, open_vfio};
use super::{Machine, Outcome, Scenario, Trouble, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(Iommu, nodes_of_a_physical_function_and_its_virtual_ones),
    scenario!(Iommu, an_isolated_engine_is_not_allocatable),
    scenario!(Iommu, an_engine_without_a_node_is_not_allocatable),
    scenario!(Iommu, engines_come_back_under_new_numbers),
    scenario!(Iommu, the_view_of_an_engine_resolves_over_the_kernels_own_class),
];

const HPRE: (&str, &str) = (
    "hpre",
    r#""deviceType": "accelerator", "selectors": {"vendors": ["19e5"], "devices": ["a258", "a259"], "drivers": ["hisi_hpre"], "functionTypes": ["vf", "pf"]}"#,
);
const PASSED_ON: (&str, &str) = (
    "passed-on",
    r#""deviceType": "accelerator", "selectors": {"vendors": ["19e5"], "drivers": ["vfio-pci"]}"#,
);

/// HPRE engines at the first two adapters, the second one with three VFs: two on their own driver, one on vfio-pci.
/// A SEC at the third adapter, a ZIP at the plain one.
pub(crate) fn make_all(machine: &Machine) -> Result<Vec<String>, Trouble> {
    machine.load("kaesim")?;
    machine.bind(PF1, "hisi_hpre")?;
    machine.bind(PF0, "hisi_hpre")?;
    machine.bind(PF2, "hisi_sec2")?;
    machine.bind(PLAIN, "hisi_zip")?;
    machine.write(PF1, "sriov_drivers_autoprobe", "0")?;
    let vfs = machine.make_vfs(PF1, 3)?;
    machine.bind(&vfs[0], "hisi_hpre")?;
    machine.bind(&vfs[1], "hisi_hpre")?;
    machine.bind(&vfs[2], "vfio-pci")?;
    for (address, device, class) in [
        (PF1, "0xa258", "0x100000"),
        (PF0, "0xa258", "0x100000"),
        (PF2, "0xa255", "0x100000"),
        (PLAIN, "0xa250", "0x120000"),
    ] {
        machine.disguise(address, "0x19e5", device, class)?;
    }
    for vf in &vfs {
        machine.disguise(vf, "0x19e5", "0xa259", "0x100000")?;
    }
    Ok(vfs)
}

fn nodes_of_a_physical_function_and_its_virtual_ones(machine: &Machine) -> Outcome {
    let vfs = make_all(machine)?;
    let node = Node::start(&[HPRE, PASSED_ON]);
    node.offers("hpre", &[PF0, PF1, &vfs[0], &vfs[1]]);
    node.offers("passed-on", &vfs[2..]);
    for address in [PF0, PF1, &vfs[0]] {
        let path = engine(machine, address)?;
        let answer = node.allocate("hpre", &[address]).unwrap();
        File::options().read(true).write(true).open(node_of(&answer, &path)).unwrap();
    }
    let answer = node.allocate("passed-on", &[&vfs[2]]).unwrap();
    open_vfio(&node_of(&answer, &group(machine, &vfs[2])?), &vfs[2]);
    Ok(())
}

fn an_isolated_engine_is_not_allocatable(machine: &Machine) -> Outcome {
    machine.load("kaesim")?;
    machine.bind(PF0, "hisi_hpre")?;
    machine.disguise(PF0, "0x19e5", "0xa258", "0x100000")?;
    let node = Node::start(&[HPRE]);
    node.offers("hpre", &[PF0]);
    machine.set_parameter("kaesim", "isolated", "1")?;
    // It is known at once where it is asked for, and to the kubelet after the next look.
    assert!(node.allocate("hpre", &[PF0]).is_err());
    node.offers("hpre", &[] as &[&str]);
    machine.set_parameter("kaesim", "isolated", "0")?;
    node.offers("hpre", &[PF0]);
    Ok(())
}

fn an_engine_without_a_node_is_not_allocatable(machine: &Machine) -> Outcome {
    machine.load("kaesim mode=0")?;
    machine.bind(PF0, "hisi_hpre")?;
    machine.disguise(PF0, "0x19e5", "0xa258", "0x100000")?;
    let node = Node::start(&[HPRE]);
    node.offers("hpre", &[] as &[&str]);
    Ok(())
}

fn engines_come_back_under_new_numbers(machine: &Machine) -> Outcome {
    machine.load("kaesim")?;
    machine.bind(PF0, "hisi_hpre")?;
    machine.disguise(PF0, "0x19e5", "0xa258", "0x100000")?;
    let node = Node::start(&[HPRE]);
    node.offers("hpre", &[PF0]);
    let before = engine(machine, PF0)?;
    // Another engine takes the number while it is away.
    machine.unbind(PF0)?;
    node.offers("hpre", &[] as &[&str]);
    machine.bind(PLAIN, "hisi_zip")?;
    machine.bind(PF0, "hisi_hpre")?;
    node.offers("hpre", &[PF0]);
    let after = engine(machine, PF0)?;
    assert_ne!(before, after);
    let answer = node.allocate("hpre", &[PF0]).unwrap();
    File::options().read(true).write(true).open(node_of(&answer, &after)).unwrap();
    Ok(())
}

fn the_view_of_an_engine_resolves_over_the_kernels_own_class(machine: &Machine) -> Outcome {
    const CLASS: &str = "/sys/class/uacce";
    let vfs = make_all(machine)?;
    let node = Node::start(&[HPRE]);
    node.offers("hpre", &[PF0, PF1, &vfs[0], &vfs[1]]);
    let answer = node.allocate("hpre", &[&vfs[0]]).unwrap();
    let [mount] = &answer.mounts[..] else { panic!("{answer:#?}") };
    assert_eq!((mount.container_path.as_str(), mount.read_only), (CLASS, true));
    let name = machine.only(&vfs[0], "uacce")?;
    machine.run("mount", &format!("--bind {} {CLASS}", mount.host_path))?;
    let seen = names(CLASS);
    // What libwd reads through the link.
    let read = |attribute: &str| std::fs::read_to_string(format!("{CLASS}/{name}/{attribute}"));
    let (api, numa_node) = (read("api"), read("device/numa_node"));
    machine.run("umount", CLASS)?;
    assert_eq!(seen, [name.as_str()]);
    assert!(api.is_ok() && numa_node.is_ok(), "{api:?} {numa_node:?}");
    Ok(())
}

/// The node of an engine; its number depends on who was there first.
fn engine(machine: &Machine, address: &str) -> Result<String, Trouble> {
    Ok(format!("/dev/{}", machine.only(address, "uacce")?))
}
