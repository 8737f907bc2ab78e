//! What a scan finds, and what it leaves alone.

use std::fs;

use crate::machine::{
    bind, config, function, host_with_answers, inventory, link, offered, only, plug, pools, recorded,
    selected, unplug, write,
};
use crate::node::{Node, POOL, host};

const BELOW: &str = "pci0000:16/0000:16:00.0";

// DSC-01
#[tokio::test]
async fn vfs_that_are_made_and_removed_later_come_and_go_without_a_restart() {
    let host = host("two-socket");
    let vfs = ["0000:17:11.0", "0000:17:11.1", "0000:17:11.2", "0000:17:11.3"];
    for vf in vfs {
        unplug(&host, vf);
    }
    let text = r#"{"resourceList":[{"resourceName":"r","selectors":{"pfNames":["ens1f1np1"]}}]}"#;
    let node = Node::start(&host, config(text)).await;
    for vf in vfs {
        plug(&host, vf, BELOW);
    }
    node.look();
    node.lists(&vfs.map(|vf| (vf, true))).await;
    for vf in vfs {
        unplug(&host, vf);
    }
    node.look();
    node.lists(&[]).await;
    plug(&host, vfs[2], BELOW);
    node.look();
    node.lists(&[(vfs[2], true)]).await;
    node.stop().await;
}

// DSC-02
#[tokio::test]
async fn a_function_that_is_bound_to_another_driver_changes_pools() {
    let host = host("two-socket");
    let text = r#"{"resourceList":[
        {"resourceName":"kernel","selectors":{"pfNames":["ens1f0np0#3-4"],"drivers":["iavf"]}},
        {"resourceName":"r","selectors":{"pfNames":["ens1f0np0#3-4"],"drivers":["vfio-pci"]}}]}"#;
    let node = Node::start(&host, config(text)).await;
    node.lists(&[("0000:17:01.4", true)]).await;
    bind(&host, "0000:17:01.3", Some("vfio-pci"));
    write(&host.path().join("dev/vfio/8"), "char 240:8 0600\n");
    node.look();
    node.lists(&[("0000:17:01.3", true), ("0000:17:01.4", true)]).await;
    node.eventually("the other pool lost it", |state| state.resource("x.io/kernel").devices().is_empty())
        .await;
    node.stop().await;
}

// DSC-03
#[test]
fn a_function_without_a_driver_is_a_state_and_comes_back_with_one() {
    let host = host("two-socket");
    let all = selected(&host, r#""pfNames":["ens2f0np0"]"#);
    bind(&host, "0000:b1:00.3", None);
    let without = selected(&host, r#""pfNames":["ens2f0np0"]"#);
    assert_eq!((all.len(), without.len()), (4, 3));
    assert!(!without.contains(&"0000:b1:00.3".to_owned()));
    bind(&host, "0000:b1:00.3", Some("mlx5_core"));
    assert_eq!(selected(&host, r#""pfNames":["ens2f0np0"]"#), all);
}

// DSC-04
#[tokio::test]
async fn a_function_without_a_driver_is_offered_only_to_who_asks_for_none_and_brings_no_node() {
    let host = host("two-socket");
    bind(&host, "0000:d9:00.0", None);
    let every = only(&host, r#""deviceType":"accelerator""#);
    assert!(!every.contains(&"0000:d9:00.0".to_owned()), "{every:?}");
    let node = Node::with_pool(&host, r#""deviceType":"accelerator","selectors":{"drivers":[""]}"#).await;
    node.lists(&[("0000:d9:00.0", true)]).await;
    let answer = node.allocate(&["0000:d9:00.0"]).await.unwrap();
    assert_eq!((answer.ids(), answer.nodes.len()), ("0000:d9:00.0", 0));
    node.stop().await;
}

const ON_ENS3F1: &str = "route inet default dev=ens3f1 via=192.0.2.1 table=main proto=dhcp metric=20100";

// DSC-05, SEC-01
#[test]
fn the_uplink_is_never_offered_unless_the_pool_says_so() {
    let host = host_with_answers("two-socket", &[ON_ENS3F1]);
    let named = r#""selectors":{"pciAddresses":["65:00.0","65:00.1"]}"#;
    assert_eq!(only(&host, named), ["0000:65:00.0"]);
    let allowed = format!(r#"{named},"allowInUse":["65:00.1"]"#);
    assert_eq!(only(&host, &allowed), ["0000:65:00.0", "0000:65:00.1"]);
    // Without the route, both are.
    assert_eq!(only(&crate::node::host("two-socket"), named).len(), 2);
}

// DSC-05
#[test]
fn the_route_that_keeps_a_device_out_is_told() {
    let host = host_with_answers("two-socket", &[ON_ENS3F1]);
    let config =
        config(r#"{"resourceList":[{"resourceName":"r","selectors":{"pciAddresses":["65:00.1"]}}]}"#);
    let inventory = inventory(&host, &config);
    let device = inventory.get(&"0000:65:00.1".into()).unwrap();
    let explained = pcidp::pool::explain_device(&config, &pools(&host, &config), device);
    let miss = explained.pools[0].objects[0].miss().unwrap().to_string();
    assert!(miss.contains("default via 192.0.2.1 dev ens3f1 metric 20100"), "{miss}");
}

// SEC-01
#[test]
fn a_default_route_through_a_bond_guards_both_of_its_ports() {
    let host = host("two-socket-server");
    let found = selected(&host, r#""functionTypes":["pf"]"#);
    assert_eq!(found, ["0000:17:00.1"], "the I350 carries bond0, and the other PFs have VFs");
}

// SEC-01
#[test]
fn a_default_route_of_a_virtio_function_guards_it() {
    let host = host("guest-no-physfn");
    assert_eq!(selected(&host, r#""vendors":["1af4"]"#), ["0000:00:04.0"]);
}

// SEC-01
#[test]
fn a_default_route_of_a_policy_table_only_leaves_a_note() {
    let host = host_with_answers(
        "two-socket",
        &["route inet default dev=ens3f1 via=192.0.2.9 table=100 proto=static"],
    );
    assert_eq!(selected(&host, r#""pciAddresses":["65:00.1"]"#).len(), 1);
    let config = config(r#"{"resourceList":[{"resourceName":"r"}]}"#);
    let notes = inventory(&host, &config).notes().to_vec();
    assert!(notes.iter().any(|note| note.path.contains("table 100")), "{notes:?}");
}

// SEC-01
#[test]
fn idle_vfs_that_learn_advertised_routes_stay_on_offer() {
    let advertised = "route inet6 default dev=ens1f0v0 via=fe80::1 table=main proto=ra metric=1024";
    let found = |lines: &[&str]| selected(&host_with_answers("two-socket", lines), r#""drivers":["iavf"]"#);
    assert_eq!(found(&[ON_ENS3F1, advertised]).len(), 4);
    // On a node without an IPv4 default the advertised route is the node's own.
    assert_eq!(found(&[advertised]).len(), 3);
    assert_eq!(found(&[&advertised.replace("proto=ra", "proto=static"), ON_ENS3F1]).len(), 3);
}

// SEC-01
#[test]
fn the_guard_is_for_network_devices_only() {
    let host = host_with_answers("two-socket", &[ON_ENS3F1]);
    assert_eq!(only(&host, r#""deviceType":"accelerator","selectors":{"vendors":["19e5"]}"#).len(), 1);
}

// DSC-07
#[test]
fn the_pf_name_is_found_below_virtio_and_vdpa() {
    for place in ["virtio5/net", "vdpa0/virtio7/net"] {
        let host = host("two-socket");
        let pf = function(&host, "0000:17:00.1");
        fs::create_dir_all(pf.join(place).parent().unwrap()).unwrap();
        fs::rename(pf.join("net"), pf.join(place)).unwrap();
        assert_eq!(selected(&host, r#""pfNames":["ens1f1np1"]"#).len(), 4, "{place}");
    }
}

// DSC-08
#[test]
fn a_pf_leaves_its_pool_when_it_gets_vfs() {
    let host = host("two-socket");
    let pool = r#""vendors":["8086"],"devices":["1592","1889","1572"],"drivers":["ice","i40e"]"#;
    assert_eq!(selected(&host, pool), ["0000:65:00.0", "0000:65:00.1"]);
    // What `echo 1 > sriov_numvfs` does.
    let pf = function(&host, "0000:65:00.0");
    write(&pf.join("sriov_numvfs"), "1\n");
    link(&pf.join("virtfn0"), "../0000:65:02.0");
    assert_eq!(selected(&host, pool), ["0000:65:00.1"]);
}

// DSC-10
#[test]
fn broken_functions_are_noted_once_and_leave_the_others_alone() {
    let host = host("wide-domains");
    assert_eq!(selected(&host, r#""vendors":["8086"]"#), ["0000:00:07.0", "10000:01:01.0"]);
    assert_eq!(selected(&host, r#""vendors":["15b3"]"#), ["10a0b0:00:02.0"]);
    let config = config(r#"{"resourceList":[{"resourceName":"r"}]}"#);
    let inventory = inventory(&host, &config);
    let mut paths: Vec<&str> = inventory.notes().iter().map(|note| note.path.as_str()).collect();
    paths.retain(|path| path.starts_with("/sys"));
    assert_eq!(
        paths,
        [
            "/sys/bus/pci/devices/0000:00:04.0/vendor",
            "/sys/bus/pci/devices/0000:00:05.0/class",
            "/sys/bus/pci/devices/0000:00:06.0/class",
            "/sys/bus/pci/devices/0000:99:00.0",
            "/sys/bus/pci/devices/not-a-device",
        ]
    );
}

// DSC-10
#[test]
fn whatever_vanishes_from_a_function_during_a_scan_the_others_are_found() {
    let host = host("two-socket-server");
    let all = r#"{"resourceList":[{"resourceName":"r","selectors":{"vendors":["15b3"],"isRdma":true}},
        {"resourceName":"rest","selectors":{"drivers":["","iavf","vfio-pci","mlx5_core","ice"]}}]}"#;
    let before = offered(&host, all);
    assert_eq!(before["r"].len(), 3);
    let address = "0000:b1:00.2";
    let directory = function(&host, address);
    let mut tried = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let place = entry.unwrap().path();
        let aside = host.path().join("aside");
        fs::rename(&place, &aside).unwrap();
        let after = offered(&host, all);
        for (pool, ids) in &before {
            for id in ids.iter().filter(|id| *id != address) {
                assert!(after[pool].contains(id), "{id} is gone without {}", place.display());
            }
        }
        fs::rename(&aside, &place).unwrap();
        tried += 1;
    }
    assert!(tried > 8, "{tried}");
    assert_eq!(offered(&host, all), before);
}

// DSC-10
#[test]
fn a_vf_whose_pf_has_vanished_is_found_without_an_index() {
    let host = host("two-socket");
    unplug(&host, "0000:17:00.1");
    assert_eq!(selected(&host, r#""rootDevices":["17:00.1"]"#).len(), 4);
    assert!(selected(&host, r#""rootDevices":["17:00.1#0-3"]"#).is_empty());
}

// DSC-14
#[test]
fn accelerators_are_encryption_engines_and_coprocessors_too() {
    let host = host("two-socket");
    let reclass = |class: &str| write(&function(&host, "0000:d9:00.0").join("class"), &format!("{class}\n"));
    let has = |members: &str| only(&host, members).contains(&"0000:d9:00.0".to_owned());
    for (class, by_itself) in [
        ("0x120000", true),
        ("0x100000", true),
        ("0x0b4000", true),
        ("0x108000", false),
        ("0xff0000", false),
        ("0x0b0000", false),
        ("0x010802", false),
    ] {
        reclass(class);
        assert_eq!(has(r#""deviceType":"accelerator""#), by_itself, "{class}");
        let classes = format!(r#""deviceType":"accelerator","selectors":{{"classes":["{}"]}}"#, &class[2..]);
        assert!(has(&classes), "{class} by class");
    }
    // By id: what may be one, but no drive and no network card.
    let by_id = r#""deviceType":"accelerator","selectors":{"vendors":["8086"],"devices":["0b30"]}"#;
    for (class, found) in [("0x108000", true), ("0xff0000", true), ("0x010802", false), ("0x020000", false)] {
        reclass(class);
        assert_eq!(has(by_id), found, "{class} by id");
    }
}

// DSC-15
#[test]
fn a_userspace_driver_does_not_tell_what_a_device_is() {
    let host = host("two-socket");
    let accelerators = only(&host, r#""deviceType":"accelerator","selectors":{"drivers":["vfio-pci"]}"#);
    assert_eq!(accelerators, ["0000:d8:00.1", "0000:d9:00.0"]);
    let network = selected(&host, r#""drivers":["vfio-pci"]"#);
    assert!(network.iter().all(|id| !accelerators.contains(id)));
    assert!(!network.is_empty());
}

// HLT-02
#[tokio::test]
async fn a_device_whose_netdev_moved_into_a_pod_stays_healthy() {
    let host = host("two-socket");
    let node = Node::with_pool(&host, r#""selectors":{"pfNames":["ens1f0np0#0-1"]}"#).await;
    node.allocate(&["0000:17:01.0"]).await.unwrap();
    fs::remove_dir_all(function(&host, "0000:17:01.0").join("net")).unwrap();
    fs::remove_dir_all(function(&host, "0000:17:01.1").join("net/ens1f0v1")).unwrap();
    // Something that does change, so that the list after it is known to be new.
    unplug(&host, "0000:17:01.1");
    node.look();
    node.lists(&[("0000:17:01.0", true)]).await;
    node.allocate(&["0000:17:01.0"]).await.unwrap();
    node.stop().await;
}

// HLT-03
#[tokio::test]
async fn a_device_that_is_unhealthy_at_first_is_judged_for_ever() {
    let host = host("two-socket");
    let node_of_group = "/dev/vfio/9";
    crate::machine::remove_node(&host, node_of_group);
    let text = r#"{"resourceList":[{"resourceName":"r","selectors":{"pfNames":["ens1f0np0#4"]}}]}"#;
    let node = Node::start(&host, config(text)).await;
    for _ in 0..2 {
        node.lists(&[("0000:17:01.4", false)]).await;
        crate::machine::make_node(&host, node_of_group);
        node.look();
        node.lists(&[("0000:17:01.4", true)]).await;
        crate::machine::remove_node(&host, node_of_group);
        node.look();
    }
    node.lists(&[("0000:17:01.4", false)]).await;
    node.stop().await;
}

#[tokio::test]
async fn the_numa_node_is_that_of_the_bridge_above_where_the_function_has_none() {
    let host = host("two-socket");
    let vf = function(&host, "0000:17:01.0");
    write(&vf.join("numa_node"), "-1\n");
    let told = |topology: &'static str| {
        let host = host.clone();
        async move {
            let members = format!(r#""selectors":{{"pciAddresses":["17:01.0"]}}{topology}"#);
            let node = Node::with_pool(&host, &members).await;
            let state = node.kubelet.state();
            let told = state.resource(POOL).devices()[0].numa_node;
            node.stop().await;
            told
        }
    };
    // Of the PF, for the bridge is not on record.
    assert_eq!(told("").await, Some(0));
    let bridge = host.path().join("sys/devices/pci0000:16/0000:16:00.0");
    write(&bridge.join("numa_node"), "1\n");
    link(&function(&host, "0000:16:00.0"), "../../../devices/pci0000:16/0000:16:00.0");
    assert_eq!(told("").await, Some(1));
    // TOP-05
    assert_eq!(told(r#","excludeTopology":true"#).await, None);
}

#[test]
fn vf_indexes_may_have_gaps() {
    let host = host("two-socket");
    let pf = function(&host, "0000:17:00.1");
    fs::remove_file(pf.join("virtfn1")).unwrap();
    fs::rename(pf.join("virtfn3"), pf.join("virtfn40")).unwrap();
    assert_eq!(selected(&host, r#""pfNames":["ens1f1np1#2-40"]"#), ["0000:17:11.2", "0000:17:11.3"]);
    assert_eq!(selected(&host, r#""pfNames":["ens1f1np1"]"#).len(), 4);
}

#[test]
fn a_function_with_an_odd_physfn_is_noted_and_skipped() {
    let host = host("two-socket");
    link(&function(&host, "0000:17:11.0").join("physfn"), "../nowhere");
    assert_eq!(selected(&host, r#""pfNames":["ens1f1np1"]"#).len(), 3);
}

#[test]
fn a_host_without_a_pci_bus_has_no_device_and_one_note() {
    let text = recorded("kunpeng-920-mode0");
    let host = crate::machine::lay_out(&text);
    fs::remove_dir_all(host.path().join("sys/bus/pci")).unwrap();
    let config = config(r#"{"resourceList":[{"resourceName":"r"}]}"#);
    let inventory = inventory(&host, &config);
    assert!(inventory.devices().is_empty());
    assert_eq!(inventory.notes()[0].path, "/sys/bus/pci/devices");
}
