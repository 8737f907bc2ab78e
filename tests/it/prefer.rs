//! Preferred allocation over the kubelet's own calls, and what is said of devices that need care.

use std::path::Path;

use assert_cmd::Command;
use pcidp::host::recording::{SnapshotOptions, record};

use crate::machine::{make_node, regroup};
use crate::node::{Node, POOL, host};

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

const PORT1: [&str; 4] = ["0000:17:11.0", "0000:17:11.1", "0000:17:11.2", "0000:17:11.3"];

// ALC-14
#[tokio::test]
async fn a_device_that_was_just_freed_is_given_out_last() {
    let node = Node::with_pool(
        &host("two-socket"),
        r#""allocationPolicy":["lru"],"selectors":{"pfNames":["ens1f1np1"]}"#,
    )
    .await;
    let preferred = |available: Vec<&'static str>| {
        let node = &node;
        async move { node.kubelet.preferred(POOL, &ids(&available), &[], 1).await.unwrap().remove(0) }
    };
    assert_eq!(preferred(PORT1.to_vec()).await, PORT1[0]);
    node.allocate(&PORT1[..2]).await.unwrap();
    // The first is free again, as the kubelet offers it; then the second, too.
    assert_eq!(preferred(vec![PORT1[0], PORT1[2], PORT1[3]]).await, PORT1[2]);
    node.allocate(&PORT1[2..]).await.unwrap();
    assert_eq!(preferred(vec![PORT1[0], PORT1[1]]).await, PORT1[0], "it was freed earlier");
    node.stop().await;
}

// ALC-14
#[tokio::test]
async fn what_is_held_when_the_plugin_starts_counts_as_just_freed_when_it_is_offered() {
    let members = r#""allocationPolicy":["lru"],"selectors":{"pfNames":["ens1f1np1"]}"#;
    let mut node = Node::with_pool(&host("two-socket"), members).await;
    node.holds(&[(POOL, &[PORT1[0]])]);
    node.restart_plugin().await;
    node.eventually("registered again", |state| state.resource(POOL).registrations.len() > 1).await;
    let chosen = node.kubelet.preferred(POOL, &ids(&PORT1), &[], 1).await.unwrap();
    assert_eq!(chosen, [PORT1[1]]);
    node.stop().await;
}

#[tokio::test]
async fn devices_of_one_group_are_preferred_together() {
    let host = host("two-socket");
    regroup(&host, PORT1[1], 13);
    regroup(&host, PORT1[3], 15);
    make_node(&host, "/dev/vfio/13");
    let node =
        Node::with_pool(&host, r#""allocationPolicy":["packed"],"selectors":{"pfNames":["ens1f1np1"]}"#)
            .await;
    for (available, size, expected) in [
        (&PORT1[..], 2, &PORT1[..2]),
        // Somebody else has the group of the second open.
        (&PORT1[1..], 2, &PORT1[2..]),
        (&PORT1[1..], 3, &PORT1[1..]),
    ] {
        let chosen = node.kubelet.preferred(POOL, &ids(available), &[], size).await.unwrap();
        assert_eq!(chosen, expected, "{available:?}");
    }
    let fixed = node.kubelet.preferred(POOL, &ids(&PORT1), &ids(&[PORT1[3]]), 2).await.unwrap();
    assert_eq!(fixed, PORT1[2..]);
    node.stop().await;
}

/// What a command prints, with its lines joined.
fn said(arguments: &[&str], host: &Path, config: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcidp"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).arg("--host-root").arg(host);
    if !arguments.contains(&"check") {
        command.arg("--config-file").arg(config);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A config file with one pool, `r`.
fn pool_file(directory: &Path, members: &str) -> std::path::PathBuf {
    let path = directory.join("config.json");
    std::fs::write(&path, format!(r#"{{"resourceList":[{{"resourceName":"r",{members}}}]}}"#)).unwrap();
    path
}

#[test]
fn every_reading_command_says_that_only_one_owner_can_open_a_shared_group() {
    let place = tempfile::tempdir().unwrap();
    let changed = host("two-socket");
    regroup(&changed, PORT1[1], 13);
    let recording = place.path().join("shared.host");
    std::fs::write(&recording, record(&changed, SnapshotOptions::default()).to_string()).unwrap();
    let config = pool_file(place.path(), r#""selectors":{"pfNames":["ens1f1np1"]}"#);
    let warning = "IOMMU group 13 is shared by 0000:17:11.0, 0000:17:11.1; only one container can open it";
    let check = ["check", config.to_str().unwrap()];
    for arguments in [&["devices"][..], &["explain", "r"], &["explain", PORT1[0]], &check] {
        assert!(said(arguments, &recording, &config).contains(warning), "{arguments:?}");
    }
    for arguments in
        [&["devices", "-o", "json"][..], &["explain", "r", "-o", "json"], &["check", check[1], "-o", "json"]]
    {
        assert!(said(arguments, &recording, &config).contains(warning), "{arguments:?}");
    }
    assert!(!said(&["explain", PORT1[2]], &recording, &config).contains("IOMMU group 13 is shared"));
}

// ALC-04
#[test]
fn every_reading_command_says_which_devices_no_iommu_guards() {
    let place = tempfile::tempdir().unwrap();
    let config = pool_file(place.path(), r#""selectors":{"drivers":["vfio-pci"]}"#);
    let recording = Path::new("testdata/hosts/noiommu-1-vfio.host");
    let check = ["check", config.to_str().unwrap()];
    for arguments in [&["devices"][..], &["explain", "r"], &["explain", "0000:21:10.0"], &check] {
        let text = said(arguments, recording, &config);
        assert!(text.contains("no IOMMU guards 0000:21:10.0, 0000:21:10.2, 0000:41:10.0; whoever"), "{text}");
    }
}

// SEL-16
#[test]
fn check_says_how_to_add_ddptool_where_a_card_needs_it() {
    let place = tempfile::tempdir().unwrap();
    let config = pool_file(place.path(), r#""selectors":{"ddpProfiles":["GTP"]}"#);
    let check = ["check", config.to_str().unwrap()];
    let hint = "the plugin then runs ddptool, which is not in its image: docs/hardware.md says how to add it";
    for (name, needs_it) in [("reference-cards", true), ("two-socket-server", false)] {
        let recording = format!("testdata/hosts/{name}.host");
        assert_eq!(said(&check, Path::new(&recording), &config).contains(hint), needs_it, "{name}");
    }
}

// TOP-02
#[tokio::test]
async fn the_bond_example_gives_a_pod_one_vf_of_each_port() {
    let text = std::fs::read_to_string("examples/bond.json").unwrap();
    let node = Node::start(&host("reference-cards"), crate::machine::config(&text)).await;
    let resource = "x.io/bond_ports";
    let state = node.eventually("the ports", |state| state.allocatable(resource) > 0).await;
    let all: Vec<String> =
        state.resource(resource).devices().iter().map(|device| device.id.clone()).collect();
    assert_eq!(
        node.kubelet.preferred(resource, &all, &[], 2).await.unwrap(),
        ["0000:17:02.0", "0000:17:0a.0"]
    );
    node.stop().await;
}
