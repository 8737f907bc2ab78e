//! Pools from real virtual functions, and what is handed out really opens.

use std::process::{Command, Stdio};

use super::machine::{DRIVE, PF0, PF1, SHARED};
use super::node::{Node, node_of};
use super::{Machine, Outcome, Scenario, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(Iommu, virtual_functions_on_three_drivers),
    scenario!(Iommu, a_handed_out_group_opens),
    scenario!(NoIommu, a_handed_out_group_opens_without_an_iommu),
    scenario!(Iommu, functions_of_a_drive),
    scenario!(Iommu, a_group_that_a_kernel_driver_holds_a_part_of),
];

/// Everything of the adapters, by its driver.
pub(crate) const KERNEL: (&str, &str) =
    ("kernel", r#""selectors": {"vendors": ["8086"], "drivers": ["igbvf"]}"#);
pub(crate) const VFIO: (&str, &str) =
    ("vfio", r#""selectors": {"vendors": ["8086"], "drivers": ["vfio-pci"]}"#);
const UIO: (&str, &str) = ("uio", r#""selectors": {"vendors": ["8086"], "drivers": ["uio_pci_generic"]}"#);

fn virtual_functions_on_three_drivers(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF0, 4)?;
    machine.bind(&vfs[1], "vfio-pci")?;
    machine.bind(&vfs[2], "vfio-pci")?;
    machine.bind(&vfs[3], "uio_pci_generic")?;
    let node = Node::start(&[KERNEL, VFIO, UIO]);
    node.offers("kernel", &vfs[..1]);
    node.offers("vfio", &vfs[1..3]);
    node.offers("uio", &vfs[3..]);

    let answer = node.allocate("kernel", &[&vfs[0]]).unwrap();
    assert!(answer.devices.is_empty(), "{answer:#?}");
    assert_eq!(answer.envs["PCIDEVICE_EXAMPLE_COM_KERNEL"], vfs[0]);

    let answer = node.allocate("vfio", &[&vfs[1], &vfs[2]]).unwrap();
    assert_eq!(answer.envs["PCIDEVICE_EXAMPLE_COM_VFIO"], vfs[1..3].join(","));
    for path in ["/dev/vfio/vfio".to_owned(), group(machine, &vfs[1])?, group(machine, &vfs[2])?] {
        assert_eq!(node_of(&answer, &path), path);
    }

    let answer = node.allocate("uio", &[&vfs[3]]).unwrap();
    std::fs::File::open(node_of(&answer, "/dev/uio0")).unwrap();
    Ok(())
}

fn a_handed_out_group_opens(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF1, 2)?;
    machine.bind(&vfs[1], "vfio-pci")?;
    let node = Node::start(&[VFIO]);
    node.offers("vfio", &vfs[1..]);
    let answer = node.allocate("vfio", &[&vfs[1]]).unwrap();
    open_vfio(&node_of(&answer, &group(machine, &vfs[1])?), &vfs[1]);
    Ok(())
}

fn a_handed_out_group_opens_without_an_iommu(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF1, 2)?;
    machine.bind(&vfs[0], "vfio-pci")?;
    machine.bind(&vfs[1], "vfio-pci")?;
    let refusing = format!(r#""allowNoIommu": false, {}"#, VFIO.1);
    let node = Node::start(&[("refusing", &refusing), VFIO]);
    node.offers("vfio", &vfs);
    let answer = node.allocate("vfio", &[&vfs[1]]).unwrap();
    // The container knows it as if there were an IOMMU; on the host it says that there is none.
    let seen = group(machine, &vfs[1])?;
    let there = node_of(&answer, &seen);
    assert_eq!(there, seen.replace("/vfio/", "/vfio/noiommu-"));
    assert!(node.log().contains("handed over without an IOMMU"), "{}", node.log());
    open_vfio(&there, &vfs[1]);
    Ok(())
}

fn functions_of_a_drive(machine: &Machine) -> Outcome {
    machine.write(DRIVE, "sriov_drivers_autoprobe", "0")?;
    let vfs = machine.make_vfs(DRIVE, 4)?;
    machine.bind(&vfs[0], "vfio-pci")?;
    // The virtual functions have the ids of the physical one.
    let selectors = r#""deviceType": "accelerator", "selectors": {"vendors": ["1b36"], "classes": ["0108"], "drivers": ["vfio-pci"]}"#;
    let node = Node::start(&[("drive", selectors)]);
    node.offers("drive", &vfs[..1]);
    let answer = node.allocate("drive", &[&vfs[0]]).unwrap();
    open_vfio(&node_of(&answer, &group(machine, &vfs[0])?), &vfs[0]);
    Ok(())
}

fn a_group_that_a_kernel_driver_holds_a_part_of(machine: &Machine) -> Outcome {
    let [given, other] = SHARED;
    machine.bind(given, "vfio-pci")?;
    machine.load("e1000")?;
    machine.bind(other, "e1000")?;
    let selectors = r#""deviceType": "accelerator", "selectors": {"vendors": ["1234"], "classes": ["00ff"], "drivers": ["vfio-pci"]}"#;
    let node = Node::start(&[("shared", selectors)]);
    // The kernel would not let a container open it.
    node.offers("shared", &[] as &[&str]);
    machine.unbind(other)?;
    node.offers("shared", &[given]);
    let answer = node.allocate("shared", &[given]).unwrap();
    open_vfio(&node_of(&answer, &group(machine, given)?), given);
    Ok(())
}

pub(crate) fn group(machine: &Machine, address: &str) -> Result<String, super::Trouble> {
    Ok(format!("/dev/vfio/{}", machine.link(address, "iommu_group")?))
}

/// Does what a userspace driver in a container does.
pub(crate) fn open_vfio(group: &str, address: &str) {
    let output = Command::new("open-vfio").args([group, address]).stdin(Stdio::null()).output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{group} does not open: {complained}");
    assert!(said.starts_with(&format!("opened {address}: ")), "{said}");
}
