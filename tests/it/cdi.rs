//! Devices that are handed over through the Container Device Interface.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use pcidp::handout::CdiMode;
use serde_json::{Value, json};

use crate::machine::{config, make_node, regroup, remove_node, unplug};
use crate::node::{Node, host};

const BOTH: Option<CdiMode> = Some(CdiMode { field: true, annotations: true });
const POOLS: &str = r#"{"resourceList":[
    {"resourceName":"a","selectors":{"pfNames":["ens1f0np0#4-5"]}},
    {"resourceName":"b","selectors":{"pfNames":["ens1f0np0#6-7"]}},
    {"resourceName":"net","selectors":{"drivers":["iavf"]}},
    {"resourceName":"10G","selectors":{"pfNames":["ens1f1np1"]}}]}"#;

fn spec(node: &Node, name: &str) -> Value {
    let text = fs::read_to_string(node.directory().join("cdi").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn specs(node: &Node) -> Vec<String> {
    let entries = fs::read_dir(node.directory().join("cdi")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn started(mode: Option<CdiMode>) -> Node {
    let node = Node::start_with(&host("two-socket"), config(POOLS), mode).await;
    let all = ["x.io/a", "x.io/b", "x.io/net", "x.io/10G"];
    node.eventually("all pools", |state| all.iter().all(|name| state.allocatable(name) > 0)).await;
    node
}

// CDI-01
#[tokio::test]
async fn a_container_with_several_pools_gets_the_devices_of_all_of_them() {
    let node = started(BOTH).await;
    let mut names = Vec::new();
    let mut keys = Vec::new();
    for (resource, ids) in [
        ("x.io/a", ["0000:17:01.4", "0000:17:01.5"]),
        ("x.io/b", ["0000:17:01.6", "0000:17:01.7"]),
        ("x.io/10G", ["0000:17:11.0", "0000:17:11.1"]),
    ] {
        let answer = node.allocate_each(resource, &[&ids]).await.unwrap().remove(0);
        assert!(answer.nodes.is_empty(), "the same node is never sent as a plain device too");
        assert_eq!(answer.annotations.values().collect::<Vec<_>>(), [&answer.cdi_devices.join(",")]);
        names.extend(answer.cdi_devices);
        keys.extend(answer.annotations.into_keys());
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 6, "{names:?}");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "the kubelet merges annotations by key: {keys:?}");
    assert!(keys.iter().all(|key| key.strip_prefix("cdi.k8s.io/").is_some_and(|name| name.len() <= 63)));
    node.stop().await;
}

// CDI-03
#[tokio::test]
async fn every_pool_with_nodes_has_a_readable_spec_of_its_own_before_the_kubelet_hears_of_it() {
    let node = started(BOTH).await;
    let names = specs(&node);
    assert_eq!(names.len(), 3, "a pool of kernel drivers has none: {names:?}");
    for name in &names {
        let mode = fs::metadata(node.directory().join("cdi").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }
    let spec = spec(&node, "pcidp-x.io_pcidp-a.json");
    assert_eq!(spec["kind"], "x.io/pcidp-a");
    assert_eq!(
        spec["devices"][0],
        json!({"name": "0000:17:01.4", "containerEdits": {"deviceNodes": [
            {"path": "/dev/vfio/vfio", "permissions": "rw"}, {"path": "/dev/vfio/9", "permissions": "rw"}]}})
    );
    node.stop().await;
}

#[tokio::test]
async fn a_pool_of_kernel_drivers_is_served_and_its_devices_have_no_cdi_name() {
    let node = started(BOTH).await;
    let answer = node.allocate_each("x.io/net", &[&["0000:17:01.0"]]).await.unwrap().remove(0);
    assert!(answer.cdi_devices.is_empty() && answer.annotations.is_empty() && answer.nodes.is_empty());
    assert_eq!(answer.variables["PCIDEVICE_X_IO_NET"], "0000:17:01.0");
    node.stop().await;
}

// CDI-02
#[tokio::test]
async fn the_runtime_is_told_in_the_way_that_is_asked_for() {
    for (mode, in_field, in_annotations) in [
        (CdiMode { field: true, annotations: false }, 1, 0),
        (CdiMode { field: false, annotations: true }, 0, 1),
    ] {
        let node = started(Some(mode)).await;
        let answer = node.allocate_each("x.io/a", &[&["0000:17:01.4"]]).await.unwrap().remove(0);
        assert_eq!((answer.cdi_devices.len(), answer.annotations.len()), (in_field, in_annotations));
        assert!(answer.nodes.is_empty());
        node.stop().await;
    }
}

// CDI-04
#[tokio::test]
async fn specs_outlive_the_plugin_and_follow_the_devices() {
    let mut node = started(BOTH).await;
    let before = specs(&node);
    node.end().await;
    assert_eq!(specs(&node), before, "a container that restarts meanwhile still finds its devices");

    let host = host("two-socket");
    let node = Node::start_with(&host, config(POOLS), BOTH).await;
    node.eventually("the pool", |state| state.allocatable("x.io/a") == 2).await;
    unplug(&host, "0000:17:01.5");
    node.look();
    node.eventually("one left", |state| state.allocatable("x.io/a") == 1).await;
    let devices = spec(&node, "pcidp-x.io_pcidp-a.json")["devices"].as_array().unwrap().len();
    assert_eq!(devices, 1, "the spec is written before the list is sent");
    node.stop().await;
}

// CDI-05, ALC-02
#[tokio::test]
async fn a_group_that_was_renumbered_since_the_scan_is_in_the_spec_before_the_answer() {
    let host = host("two-socket");
    let node = Node::start_with(&host, config(POOLS), BOTH).await;
    node.eventually("the pool", |state| state.allocatable("x.io/a") == 2).await;
    regroup(&host, "0000:17:01.4", 125);
    remove_node(&host, "/dev/vfio/9");
    make_node(&host, "/dev/vfio/125");
    node.allocate_each("x.io/a", &[&["0000:17:01.4"]]).await.unwrap();
    let nodes = &spec(&node, "pcidp-x.io_pcidp-a.json")["devices"][0]["containerEdits"]["deviceNodes"];
    assert_eq!(nodes[1]["path"], "/dev/vfio/125");
    node.stop().await;
}
