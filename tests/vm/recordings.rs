//! `pcidp snapshot` records today what is kept in `testdata/hosts`.

use std::fs;
use std::path::Path;

use pcidp::host::recording::Recording;

use super::canonical::differences;
use super::guest::OUT;
use super::machine::{ADAPTERS, DRIVE, PF0, PF1, PF2, PLAIN, SHARED, VIRTIO, pcidp, write};
use super::{Machine, Outcome, Scenario, engines, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(Iommu, states_with_an_iommu),
    scenario!(Iommu, kunpeng_engines),
    scenario!(NoIommu, states_without_an_iommu),
    scenario!(Software, software_devices),
];

/// Where the kept recordings are, and whether they are to be made anew.
pub(crate) const KEPT: &str = "hosts";
pub(crate) const RECORD: &str = "record";

fn states_with_an_iommu(machine: &Machine) -> Outcome {
    let mut drift = Vec::new();
    drift.extend(compare("iommu-0-initial"));

    for pf in ADAPTERS {
        machine.up(pf)?;
    }
    let vfs0 = machine.make_vfs(PF0, 4)?;
    let vfs1 = machine.make_vfs(PF1, 4)?;
    machine.make_vfs(PF2, 4)?;
    machine.up(&vfs0[0])?;
    for pf in ADAPTERS {
        // Making virtual functions takes the carrier away for a moment.
        machine.up(pf)?;
    }
    drift.extend(compare("iommu-1-igbvf-bound"));

    for address in [&vfs0[0], &vfs0[1], &vfs1[0], SHARED[0], VIRTIO, PLAIN] {
        machine.bind(address, "vfio-pci")?;
    }
    machine.bind(&vfs0[2], "uio_pci_generic")?;
    machine.bind(SHARED[1], "uio_pci_generic")?;
    machine.write(DRIVE, "sriov_drivers_autoprobe", "0")?;
    let parts = machine.make_vfs(DRIVE, 4)?;
    machine.bind(&parts[0], "vfio-pci")?;
    drift.extend(compare("iommu-2-mixed-vfio-uio"));

    machine.bind(&vfs0[0], "igbvf")?;
    machine.probe(&vfs0[1])?;
    machine.remove_vfs(PF1)?;
    machine.remove_vfs(PF2)?;
    machine.load("pci-pf-stub")?;
    machine.bind(PF2, "pci-pf-stub")?;
    machine.make_vfs(PF2, 2)?;
    machine.up(PF1)?;
    drift.extend(compare("iommu-3-pf-stub"));
    assert!(drift.is_empty(), "{}", drift.join("\n"));
    Ok(())
}

fn states_without_an_iommu(machine: &Machine) -> Outcome {
    let mut drift = Vec::new();
    let vfs0 = machine.make_vfs(PF0, 4)?;
    let vfs1 = machine.make_vfs(PF1, 2)?;
    drift.extend(compare("noiommu-0-igbvf"));

    for address in [&vfs0[0], &vfs0[1], &vfs1[0]] {
        machine.bind(address, "vfio-pci")?;
    }
    machine.bind(&vfs0[2], "uio_pci_generic")?;
    drift.extend(compare("noiommu-1-vfio"));
    assert!(drift.is_empty(), "{}", drift.join("\n"));
    Ok(())
}

fn kunpeng_engines(machine: &Machine) -> Outcome {
    engines::make_all(machine)?;
    let drift = compare("kae-0-hpre-vfs");
    assert!(drift.is_empty(), "{}", drift.join("\n"));
    Ok(())
}

fn software_devices(machine: &Machine) -> Outcome {
    let vdpa = |words: &str| machine.run("/sbin/vdpa", words);
    let rdma = |words: &str| machine.run("/sbin/rdma", words);
    for module in ["vhost_net", "tun", "vdpa_sim_net", "vhost_vdpa"] {
        machine.load(module)?;
    }
    vdpa("dev add name vdpa0 mgmtdev vdpasim_net mac 00:11:22:33:44:55")?;
    vdpa("dev add name vdpa1 mgmtdev vdpasim_net mac 00:11:22:33:44:56")?;
    machine.load("virtio_vdpa")?;
    write("/sys/bus/vdpa/drivers/vhost_vdpa/unbind", "vdpa1")?;
    write("/sys/bus/vdpa/devices/vdpa1/driver_override", "virtio_vdpa")?;
    write("/sys/bus/vdpa/drivers/virtio_vdpa/bind", "vdpa1")?;
    machine.load("vduse")?;
    machine.load("vp_vdpa")?;
    machine.bind(VIRTIO, "vp-vdpa")?;
    vdpa(&format!("dev add name vdpa2 mgmtdev pci/{VIRTIO}"))?;

    machine.up(PF0)?;
    let vfs = machine.make_vfs(PF0, 2)?;
    let (uplink, vf, other) = (machine.up(PF0)?, machine.up(&vfs[0])?, machine.netdev(PF1)?);
    for module in ["rdma_rxe", "siw", "ib_uverbs", "ib_umad", "rdma_ucm"] {
        machine.load(module)?;
    }
    rdma(&format!("link add rxe0 type rxe netdev {uplink}"))?;
    rdma(&format!("link add rxe1 type rxe netdev {vf}"))?;
    rdma(&format!("link add siw0 type siw netdev {other}"))?;
    let mut drift = compare("soft-0-vdpa-rdma-virtual");

    for name in ["rxe0", "rxe1", "siw0"] {
        rdma(&format!("link delete {name}"))?;
    }
    machine.unload("siw")?;
    machine.unload("rdma_rxe")?;
    machine.load("rdma_rxe pci_parent=1")?;
    machine.load("siw pci_parent=1")?;
    rdma(&format!("link add rocep33s0 type rxe netdev {uplink}"))?;
    rdma(&format!("link add rocep33s16 type rxe netdev {vf}"))?;
    rdma(&format!("link add iwp65s0 type siw netdev {other}"))?;
    // The RDMA device of a virtual function goes with its interface.
    machine.bind(&vfs[0], "vfio-pci")?;
    machine.bind(&vfs[0], "igbvf")?;
    machine.load(&format!("auxsim pci={PF1} count=2"))?;
    machine.load("netdevsim")?;
    write("/sys/bus/netdevsim/new_device", "10 2")?;
    write("/sys/bus/netdevsim/devices/netdevsim10/sriov_numvfs", "3")?;
    machine.run("/sbin/devlink", "dev eswitch set netdevsim/netdevsim10 mode switchdev")?;
    machine.load("mtty")?;
    write(
        "/sys/class/mdev_bus/mtty/mdev_supported_types/mtty-2/create",
        "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001",
    )?;
    drift.extend(compare("soft-1-rdma-pci-auxsf-netdevsim-mdev"));
    assert!(drift.is_empty(), "{}", drift.join("\n"));
    Ok(())
}

/// What differs between a kept recording and this machine, below a line that names it.
fn compare(name: &str) -> Vec<String> {
    let now = format!("{OUT}/{name}.host");
    pcidp(&["snapshot", "--out", &now]);
    if Path::new(RECORD).exists() {
        return Vec::new();
    }
    let open = |path: &str| Recording::open(Path::new(path)).unwrap();
    let mut drift = differences(&open(&format!("{KEPT}/{name}.host")), &open(&now));
    if !drift.is_empty() {
        let count = drift.len();
        drift.truncate(60);
        drift.insert(0, format!("{name} drifted: {count} lines; - is the kept recording, + is this machine"));
    }
    // Beside what it is compared with, for a look at both.
    fs::write(format!("{OUT}/{name}.drift"), drift.join("\n")).unwrap();
    drift
}
