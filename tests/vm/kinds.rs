//! Kinds of devices that the kernel makes in software, shared groups, and what must not be taken for a PF.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use pcidp::host::HostRoot;
use pcidp::host::netlink::EswitchMode;

use super::machine::{PF0, PF1, SHARED, VIRTIO, names, pcidp, write};
use super::node::{Node, node_of};
use super::pools::{group, open_vfio};
use super::{Machine, Outcome, Scenario, Trouble, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(Iommu, one_owner_opens_a_shared_group),
    scenario!(Iommu, a_port_that_calls_itself_a_representor_names_no_pf),
    scenario!(Software, rdma_devices_open_and_keep_their_place_when_they_move_into_a_pod),
    scenario!(Software, a_vdpa_device_of_a_function_opens),
    scenario!(Software, subfunctions_are_selected_by_their_number),
    scenario!(Software, devlink_is_read_as_the_kernel_writes_it),
];

fn one_owner_opens_a_shared_group(machine: &Machine) -> Outcome {
    for address in SHARED {
        machine.bind(address, "vfio-pci")?;
    }
    // As if both were accelerators of one card.
    machine.disguise(SHARED[1], "0x1234", "0x11e9", "0x120000")?;
    let selectors = r#""deviceType": "accelerator", "allocationPolicy": ["packed"],
        "selectors": {"vendors": ["1234"], "classes": ["00ff", "12"], "drivers": ["vfio-pci"]}"#;
    let node = Node::start(&[("shared", selectors)]);
    node.offers("shared", &SHARED);
    assert_eq!(node.preferred("shared", &SHARED, 2), SHARED);
    let path = group(machine, SHARED[0])?;
    let told = format!(
        "IOMMU group {} is shared by {}, {}",
        path.trim_start_matches("/dev/vfio/"),
        SHARED[0],
        SHARED[1]
    );
    let said = pcidp(&["devices"]).split_whitespace().collect::<Vec<_>>().join(" ");
    // Without a config, a class that nobody can want is not listed; the log of the plugin has both.
    assert!(said.contains(&told) || node.log().contains(&told), "{said}\n{}", node.log());

    let answer = node.allocate("shared", &SHARED).unwrap();
    let there = node_of(&answer, &path);
    assert_eq!(answer.devices.iter().filter(|device| device.container_path == path).count(), 1);
    let mut owner = Command::new("open-vfio")
        .args([&there, SHARED[0]])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 6];
    owner.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"opened");
    let another = Command::new("open-vfio").args([&there, SHARED[1]]).stdin(Stdio::null()).output().unwrap();
    assert!(!another.status.success(), "the group has two owners");
    drop(owner.stdin.take());
    owner.wait().unwrap();
    open_vfio(&there, SHARED[1]);
    Ok(())
}

fn a_port_that_calls_itself_a_representor_names_no_pf(machine: &Machine) -> Outcome {
    let vfs = machine.make_vfs(PF0, 2)?;
    let uplink = machine.netdev(PF0)?;
    let selectors = format!(r#""selectors": {{"pfNames": ["{uplink}"]}}"#);
    Node::start(&[("vfs", &selectors)]).offers("vfs", &vfs);
    write("/tmp/port", "pf0vf1\n")?;
    let real = std::fs::canonicalize(format!("/sys/class/net/{uplink}/phys_port_name")).unwrap();
    machine.run("mount", &format!("--bind /tmp/port {}", real.display()))?;
    // Neither is it the name of the PF, nor an interface of it.
    let devices = pcidp(&["devices"]);
    assert!(!devices.split_whitespace().any(|word| word == uplink), "{devices}");
    assert!(devices.lines().any(|line| line.contains(&vfs[0]) && line.contains(PF0)), "{devices}");
    Ok(())
}

/// Software RDMA below PCI functions, as hardware hangs there; whatever was there before is gone.
fn make_rdma(machine: &Machine, links: &[(&str, &str, &str)]) -> Outcome {
    for name in names("/sys/class/infiniband") {
        machine.run("/sbin/rdma", &format!("link delete {name}"))?;
    }
    for module in ["siw", "rdma_rxe"] {
        if Path::new("/sys/module").join(module).exists() {
            machine.unload(module)?;
        }
    }
    for module in ["rdma_rxe pci_parent=1", "siw pci_parent=1", "ib_uverbs", "ib_umad", "rdma_ucm"] {
        machine.load(module)?;
    }
    for (name, kind, address) in links {
        let netdev = machine.up(address)?;
        machine.run("/sbin/rdma", &format!("link add {name} type {kind} netdev {netdev}"))?;
    }
    Ok(())
}

fn rdma_devices_open_and_keep_their_place_when_they_move_into_a_pod(machine: &Machine) -> Outcome {
    machine.up(PF0)?;
    let vfs = machine.make_vfs(PF0, 1)?;
    machine.up(PF0)?;
    make_rdma(machine, &[("rxe0", "rxe", &vfs[0]), ("siw0", "siw", PF1)])?;
    let pools = [
        ("vf", r#""selectors": {"isRdma": true, "functionTypes": ["vf"]}"#),
        ("pf", r#""selectors": {"isRdma": true, "functionTypes": ["pf"]}"#),
    ];
    let node = Node::start(&pools);
    node.offers("vf", &vfs);
    node.offers("pf", &[PF1]);
    for (pool, address, name) in [("vf", vfs[0].as_str(), "rxe0"), ("pf", PF1, "siw0")] {
        let uverbs = format!("/dev/infiniband/{}", machine.only(address, "infiniband_verbs")?);
        let answer = node.allocate(pool, &[address]).unwrap();
        for path in [uverbs.as_str(), "/dev/infiniband/rdma_cm"] {
            File::options().read(true).write(true).open(node_of(&answer, path)).unwrap();
        }
        assert_eq!(machine.only(address, "infiniband")?, name);
    }

    // The mode is the machine's, and stays.
    machine.run("/sbin/rdma", "system set netns exclusive")?;
    machine.ip("netns add pod")?;
    let moved = machine.run("/sbin/rdma", "dev set rxe0 netns pod");
    let back = |machine: &Machine| -> Outcome {
        machine.ip("netns delete pod")?;
        machine.run("/sbin/rdma", "system set netns shared")
    };
    if let Err(trouble) = moved {
        println!("software RDMA does not move here: {trouble}");
        return back(machine);
    }
    drop(node);
    let node = Node::start(&pools);
    node.offers("vf", &vfs);
    let refused = node.allocate("vf", &[&vfs[0]]).unwrap_err().to_string();
    assert!(refused.contains("RDMA device"), "{refused}");
    back(machine)
}

fn a_vdpa_device_of_a_function_opens(machine: &Machine) -> Outcome {
    for module in ["vhost_vdpa", "vp_vdpa"] {
        machine.load(module)?;
    }
    machine.bind(VIRTIO, "vp-vdpa")?;
    machine.run("/sbin/vdpa", &format!("dev add name vdpa7 mgmtdev pci/{VIRTIO}"))?;
    let device = Path::new("/sys/bus/vdpa/devices/vdpa7");
    // Where virtio_vdpa is loaded too, it may have been faster.
    if std::fs::read_link(device.join("driver")).is_ok_and(|driver| driver.ends_with("virtio_vdpa")) {
        write("/sys/bus/vdpa/drivers/virtio_vdpa/unbind", "vdpa7")?;
        write(device.join("driver_override"), "vhost_vdpa")?;
        write("/sys/bus/vdpa/drivers/vhost_vdpa/bind", "vdpa7")?;
    }
    let node = Node::start(&[
        ("vhost", r#""selectors": {"vdpaType": "vhost"}"#),
        ("virtio", r#""selectors": {"vdpaType": "virtio"}"#),
    ]);
    node.offers("vhost", &[VIRTIO]);
    let number =
        names(device).into_iter().find_map(|name| Some(name.strip_prefix("vhost-vdpa-")?.to_owned()));
    let path = format!("/dev/vhost-vdpa-{}", number.ok_or_else(|| Trouble::new("vdpa7 has no node"))?);
    let answer = node.allocate("vhost", &[VIRTIO]).unwrap();
    assert_eq!(answer.devices.len(), 1, "{answer:#?}");
    File::options().read(true).write(true).open(node_of(&answer, &path)).unwrap();
    Ok(())
}

fn subfunctions_are_selected_by_their_number(machine: &Machine) -> Outcome {
    if Path::new("/sys/module/auxsim").exists() {
        machine.unload("auxsim")?;
    }
    machine.load(&format!("auxsim pci={PF1} count=3"))?;
    let uplink = machine.netdev(PF1)?;
    let selectors = format!(
        r#""deviceType": "auxNetDevice", "selectors": {{"auxTypes": ["sf"], "pfNames": ["{uplink}#88-89"]}}"#
    );
    let node = Node::start(&[("sf", &selectors)]);
    node.offers("sf", &["mlx5_core.sf.4", "mlx5_core.sf.5"]);
    let answer = node.allocate("sf", &["mlx5_core.sf.5"]).unwrap();
    assert_eq!(answer.envs["PCIDEVICE_EXAMPLE_COM_SF"], "mlx5_core.sf.5");
    machine.unload("auxsim")
}

fn devlink_is_read_as_the_kernel_writes_it(machine: &Machine) -> Outcome {
    const DEVICE: &str = "netdevsim/netdevsim11";
    machine.load("netdevsim")?;
    write("/sys/bus/netdevsim/new_device", "11 1")?;
    write("/sys/bus/netdevsim/devices/netdevsim11/sriov_numvfs", "1")?;
    let host = HostRoot::live();
    let versions: Vec<(String, String)> = host.netlink().versions(DEVICE).unwrap().into_iter().collect();
    assert_eq!(versions, [("fw.mgmt".to_owned(), "10.20.30".to_owned())]);
    for (mode, name) in [(EswitchMode::Switchdev, "switchdev"), (EswitchMode::Legacy, "legacy")] {
        machine.run("/sbin/devlink", &format!("dev eswitch set {DEVICE} mode {name}"))?;
        assert_eq!(host.netlink().eswitch_mode(DEVICE).unwrap(), Some(mode));
    }
    // It has parameters, and not this one.
    assert_eq!(host.netlink().enables_rdma(DEVICE).unwrap(), None);
    // A function without devlink, as most are.
    assert!(host.netlink().versions(&format!("pci/{PF0}")).unwrap().is_empty());
    assert_eq!(host.netlink().eswitch_mode(&format!("pci/{PF0}")).unwrap(), None);
    write("/sys/bus/netdevsim/del_device", "11")
}
