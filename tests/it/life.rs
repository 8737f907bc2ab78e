//! Kubelets, sockets and streams come and go.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pcidp::host::recording::generate::many_vfs;
use pcidp::kubelet::stand_in::State;

use crate::machine::{config, plug, unplug};
use crate::node::{Node, host};

const THREE: &str = r#"{"resourceList":[
    {"resourceName":"a","selectors":{"pfNames":["ens1f0np0#0-3"]}},
    {"resourceName":"b","selectors":{"pfNames":["ens1f0np0#4-7"]}},
    {"resourceName":"c","deviceType":"accelerator"}]}"#;
const NAMES: [&str; 3] = ["x.io/a", "x.io/b", "x.io/c"];

/// A node whose three pools all stream.
async fn three() -> Node {
    let node = Node::start(&host("two-socket"), config(THREE)).await;
    node.eventually("three pools", |state| NAMES.iter().all(|name| state.allocatable(name) > 0)).await;
    node
}

fn registrations(state: &State) -> [usize; 3] {
    NAMES.map(|name| state.resource(name).registrations.len())
}

/// Every pool registered more often than before and has a list that is newer than its registration.
fn all_are_back(state: &State, before: &State) -> bool {
    NAMES.iter().all(|name| {
        let (now, before) = (state.resource(name), before.resource(name));
        let Some(registered) = now.registrations.last() else { return false };
        now.connected
            && now.registrations.len() > before.registrations.len()
            && now
                .lists
                .last()
                .is_some_and(|list| list.at >= registered.at && list.devices == before.devices())
    })
}

fn sockets(node: &Node, resource: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(node.directory()).unwrap().map(|entry| entry.unwrap().path());
    let ours = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(resource);
    entries.filter(ours).collect()
}

// REG-10, REG-02
#[tokio::test]
async fn a_kubelet_restart_registers_every_pool_again_with_the_same_devices() {
    let mut node = three().await;
    for _ in 0..3 {
        let before = node.kubelet.state();
        node.kubelet.restart().await.unwrap();
        node.eventually("every pool is back", |state| all_are_back(state, &before)).await;
    }
    node.stop().await;
}

// REG-10
#[tokio::test]
async fn a_wiped_directory_and_a_later_kubelet_bring_every_pool_back() {
    let mut node = three().await;
    let before = node.kubelet.state();
    node.kubelet.stop().await;
    for entry in fs::read_dir(node.directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sock") {
            fs::remove_file(path).unwrap();
        }
    }
    node.kubelet.restart().await.unwrap();
    node.eventually("every pool is back", |state| all_are_back(state, &before)).await;
    for name in ["x.io_a-", "x.io_b-", "x.io_c-"] {
        assert_eq!(sockets(&node, name).len(), 1, "{name}");
    }
    node.stop().await;
}

// REG-05
#[tokio::test]
async fn two_kubelets_in_quick_succession_end_in_one_registered_streaming_pool() {
    let mut node = three().await;
    let before = node.kubelet.state();
    node.kubelet.restart().await.unwrap();
    node.kubelet.restart().await.unwrap();
    node.eventually("every pool is back", |state| all_are_back(state, &before)).await;
    assert_eq!(sockets(&node, "x.io_a-").len(), 1);
    node.stop().await;
}

// REG-01
#[tokio::test]
async fn a_dropped_stream_registers_its_pool_again_and_no_other() {
    let node = three().await;
    assert_eq!(registrations(&node.kubelet.state()), [1, 1, 1]);
    node.kubelet.drop_stream("x.io/b");
    node.eventually("b is back", |state| {
        state.resource("x.io/b").registrations.len() == 2 && state.allocatable("x.io/b") == 4
    })
    .await;
    assert_eq!(registrations(&node.kubelet.state()), [1, 2, 1]);
    node.stop().await;
}

// REG-08
#[tokio::test]
async fn a_pool_whose_socket_was_removed_makes_another_one() {
    let node = three().await;
    for path in sockets(&node, "x.io_a-") {
        fs::remove_file(path).unwrap();
    }
    node.eventually("a is back", |state| {
        state.resource("x.io/a").registrations.len() >= 2 && state.allocatable("x.io/a") == 4
    })
    .await;
    assert_eq!(sockets(&node, "x.io_a-").len(), 1);
    assert_eq!(registrations(&node.kubelet.state())[1..], [1, 1]);
    node.stop().await;
}

// REG-04
#[tokio::test]
async fn a_refused_pool_does_not_hurt_the_others_and_is_not_given_up() {
    let host = host("two-socket");
    let node = Node::start(&host, config(THREE)).await;
    node.eventually("three pools", |state| NAMES.iter().all(|name| state.allocatable(name) > 0)).await;
    node.kubelet.refuse(Some("no"));
    node.kubelet.drop_stream("x.io/b");
    node.eventually("b is refused", |state| state.resource("x.io/b").refused > 1).await;
    unplug(&host, "0000:17:01.0");
    node.look();
    let state = node.eventually("a has one device less", |state| state.allocatable("x.io/a") == 3).await;
    assert_eq!((registrations(&state), state.allocatable("x.io/b")), ([1, 1, 1], 0));
    node.allocate_each("x.io/a", &[&["0000:17:01.1"]]).await.unwrap();
    node.kubelet.refuse(None);
    node.eventually("b is back", |state| state.allocatable("x.io/b") == 4).await;
    node.stop().await;
}

// REG-05
#[tokio::test]
async fn a_kubelet_that_comes_late_is_found() {
    let mut node = three().await;
    node.kubelet.stop().await;
    fs::remove_file(node.kubelet.socket()).unwrap();
    node.restart_plugin().await;
    let before = node.kubelet.state();
    node.kubelet.restart().await.unwrap();
    node.eventually("every pool is back", |state| all_are_back(state, &before)).await;
    node.stop().await;
}

// REG-11
#[tokio::test]
async fn a_pool_registers_with_its_first_device_and_stays_at_none_without() {
    let host = host("two-socket");
    let device = "0000:17:01.0";
    unplug(&host, device);
    let text = r#"{"resourceList":[{"resourceName":"r","selectors":{"pciAddresses":["17:01.0"]}},
        {"resourceName":"other","selectors":{"pciAddresses":["17:01.1"]}}]}"#;
    let node = Node::start(&host, config(text)).await;
    let state = node.eventually("the other pool", |state| state.allocatable("x.io/other") == 1).await;
    assert!(state.resource("x.io/r").registrations.is_empty());
    assert!(sockets(&node, "x.io_r-").is_empty());
    plug(&host, device, "pci0000:16/0000:16:00.0");
    node.look();
    node.lists(&[(device, true)]).await;
    unplug(&host, device);
    node.look();
    node.lists(&[]).await;
    assert_eq!(node.kubelet.state().resource("x.io/r").registrations.len(), 1);
    node.stop().await;
}

// REG-11
#[tokio::test]
async fn a_pool_that_lost_its_devices_is_registered_again_at_the_next_kubelet() {
    let host = host("two-socket");
    let mut node = Node::with_pool(&host, r#""selectors":{"pciAddresses":["17:01.0"]}"#).await;
    unplug(&host, "0000:17:01.0");
    node.look();
    node.lists(&[]).await;
    node.kubelet.restart().await.unwrap();
    node.eventually("the empty pool is back", |state| {
        let resource = state.resource("x.io/r");
        resource.registrations.len() > 1
            && resource.lists.last().is_some_and(|list| list.at > resource.registrations[1].at)
    })
    .await;
    node.lists(&[]).await;
    node.stop().await;
}

// RLD-01, REG-02
#[tokio::test]
async fn the_stream_of_an_unchanged_pool_sees_nothing_when_another_one_changes() {
    let host = host("two-socket");
    let node = Node::start(&host, config(THREE)).await;
    node.eventually("three pools", |state| NAMES.iter().all(|name| state.allocatable(name) > 0)).await;
    for (round, device) in ["0000:17:01.0", "0000:17:01.1", "0000:17:01.2"].iter().enumerate() {
        unplug(&host, device);
        node.look();
        let left = 3 - round;
        let state = node.eventually("a shrinks", |state| state.allocatable("x.io/a") == left).await;
        assert_eq!(NAMES.map(|name| state.resource(name).lists.len()), [round + 2, 1, 1]);
    }
    node.stop().await;
}

// SCL-01
#[tokio::test]
async fn fifty_pools_end_at_once() {
    let pool = |n| format!(r#"{{"resourceName":"pool-{n}","selectors":{{"vfIndexes":["{n}"]}}}}"#);
    let pools: Vec<String> = (0..50).map(pool).collect();
    let host = many_vfs(1, 50).unwrap().lay_out().unwrap();
    let text = format!(r#"{{"resourceList":[{}]}}"#, pools.join(","));
    let mut node = Node::start(&host, config(&text)).await;
    node.eventually("fifty pools", |state| {
        (0..50).all(|pool| state.allocatable(&format!("x.io/pool-{pool}")) == 1)
    })
    .await;
    let begun = Instant::now();
    node.end().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let left = sockets(&node, "x.io_");
    assert!(left.is_empty(), "{left:?}");
}
