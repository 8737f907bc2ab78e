//! A daemon that lives: the config and the machine change while it serves, and others serve beside it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pcidp::daemon::{ConfigSource, Manner, Place};
use pcidp::kubelet::Connection;
use pcidp::kubelet::api::deviceplugin as api;
use pcidp::kubelet::api::deviceplugin::device_plugin_client::DevicePluginClient;
use pcidp::kubelet::api::pluginregistration::registration_client::RegistrationClient;
use pcidp::kubelet::api::pluginregistration::{InfoRequest, RegistrationStatus};

use crate::machine::{bind, config, make_node, plug, unplug};
use crate::node::{Node, host};

const PARENT: &str = "pci0000:16/0000:16:00.0";

fn pool(name: &str, indexes: &str) -> String {
    format!(r#"{{"resourceName":"{name}","settle":"0s","selectors":{{"pfNames":["ens1f0np0#{indexes}"]}}}}"#)
}

fn list(pools: &[String]) -> String {
    format!(r#"{{"resourceList":[{}]}}"#, pools.join(","))
}

/// A config in a directory, put there as the kubelet puts a ConfigMap.
struct ConfigMap {
    place: tempfile::TempDir,
    version: usize,
}

impl ConfigMap {
    fn new(text: &str) -> Self {
        let mut map = Self { place: tempfile::tempdir().unwrap(), version: 0 };
        map.put(text);
        std::os::unix::fs::symlink("..data/config.json", map.place.path().join("config.json")).unwrap();
        map
    }

    fn put(&mut self, text: &str) {
        self.version += 1;
        let version = format!("..{}", self.version);
        let directory = self.place.path().join(&version);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("config.json"), text).unwrap();
        let new = self.place.path().join("..data_tmp");
        std::os::unix::fs::symlink(version, &new).unwrap();
        fs::rename(new, self.place.path().join("..data")).unwrap();
    }

    fn source(&self) -> ConfigSource {
        ConfigSource { place: Place::File(self.place.path().join("config.json")), prefix: "x.io".to_owned() }
    }
}

/// A node whose config can be changed.
async fn configured(map: &ConfigMap) -> Node {
    let source = map.source();
    let config = source.load().unwrap().checked.config;
    Node::start_tuned(&host("two-socket"), config, move |options| options.source = Some(source.clone())).await
}

// RLD-01
#[tokio::test]
async fn a_new_config_adds_and_removes_pools_and_touches_no_other() {
    let mut map = ConfigMap::new(&list(&[pool("a", "0-1"), pool("b", "2-3")]));
    let node = configured(&map).await;
    let state = node
        .eventually("two pools", |state| state.allocatable("x.io/a") == 2 && state.allocatable("x.io/b") == 2)
        .await;
    let lists_of_a = state.resource("x.io/a").lists.len();
    map.put(&list(&[pool("c", "4-7"), pool("a", "0-1")]));
    let state = node
        .eventually("c instead of b", |state| {
            state.allocatable("x.io/c") == 4 && !state.resource("x.io/b").connected
        })
        .await;
    assert!(
        state.resource("x.io/b").lists.last().unwrap().devices.is_empty(),
        "it was told to be empty first"
    );
    let a = state.resource("x.io/a");
    assert_eq!((a.registrations.len(), a.lists.len(), a.connected), (1, lists_of_a, true));
    let has_socket = |node: &Node| {
        let mut entries = fs::read_dir(node.directory()).unwrap().map(|entry| entry.unwrap().file_name());
        entries.any(|name| name.to_str().unwrap().starts_with("x.io_b-"))
    };
    node.until("its socket goes", |node| !has_socket(node)).await;
    // And back again.
    map.put(&list(&[pool("b", "2-3"), pool("a", "0-1")]));
    node.eventually("b again", |state| {
        state.allocatable("x.io/b") == 2 && !state.resource("x.io/c").connected
    })
    .await;
    node.stop().await;
}

// RLD-01
#[tokio::test]
async fn a_bad_config_changes_nothing_and_a_bad_pool_keeps_its_last_good_form() {
    let mut map = ConfigMap::new(&list(&[pool("a", "0-1"), pool("b", "2-3")]));
    let node = configured(&map).await;
    node.eventually("two pools", |state| state.allocatable("x.io/b") == 2).await;
    map.put("{ this is no JSON");
    map.put(&list(&[pool("a", "0-2"), r#"{"resourceName":"b","deviceType":"toaster"}"#.to_owned()]));
    let state = node.eventually("a has one more", |state| state.allocatable("x.io/a") == 3).await;
    assert_eq!(state.allocatable("x.io/b"), 1, "the device that a has now is not b's any more");
    fs::remove_file(map.place.path().join("..data")).unwrap();
    map.put(&list(&[pool("a", "0-3")]));
    node.eventually("a has all", |state| state.allocatable("x.io/a") == 4).await;
    node.stop().await;
}

// RLD-01
#[tokio::test]
async fn a_device_that_a_pod_holds_does_not_change_its_pool() {
    let mut map = ConfigMap::new(&list(&[pool("a", "0-1"), pool("b", "2-3")]));
    let node = configured(&map).await;
    node.eventually("two pools", |state| state.allocatable("x.io/b") == 2).await;
    node.holds(&[("x.io/a", &["0000:17:01.0"])]);
    map.put(&list(&[pool("b", "0-3"), pool("a", "4")]));
    let state = node.eventually("b has all others", |state| state.allocatable("x.io/b") == 3).await;
    let a = state.resource("x.io/a");
    let ids: Vec<&str> = a.devices().iter().map(|device| device.id.as_str()).collect();
    assert_eq!(ids, ["0000:17:01.0", "0000:17:01.4"]);
    node.holds(&[]);
    node.look();
    node.eventually("b has it now", |state| {
        state.allocatable("x.io/b") == 4 && state.allocatable("x.io/a") == 1
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_directory_with_a_file_for_each_node_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let source = ConfigSource {
        place: Place::Directory { path: place.path().to_owned(), node: "n1".to_owned() },
        prefix: "x.io".to_owned(),
    };
    let nothing = source.load().unwrap().checked.config;
    assert!(nothing.pools.is_empty());
    let node = Node::start_tuned(&host("two-socket"), nothing, move |options| {
        options.source = Some(source.clone());
    })
    .await;
    fs::write(place.path().join("default.json"), list(&[pool("a", "0")])).unwrap();
    node.eventually("the default", |state| state.allocatable("x.io/a") == 1).await;
    fs::write(place.path().join("n1.json"), list(&[pool("a", "0-2")])).unwrap();
    node.eventually("its own", |state| state.allocatable("x.io/a") == 3).await;
    node.stop().await;
}

// DSC-01
#[tokio::test]
async fn a_device_that_appears_is_offered_once_it_was_still_for_long_enough() {
    let host = host("two-socket");
    unplug(&host, "0000:17:01.0");
    let node = Node::with_pool(&host, r#""settle":"300ms","selectors":{"pfNames":["ens1f0np0#0-1"]}"#).await;
    node.lists(&[("0000:17:01.1", true)]).await;
    let plugged = Instant::now();
    plug(&host, "0000:17:01.0", PARENT);
    node.look();
    let state = node.eventually("both", |state| state.allocatable("x.io/r") == 2).await;
    let last = state.resource("x.io/r").lists.last().unwrap().at;
    assert!(last - plugged >= Duration::from_millis(300), "{:?}", last - plugged);
    node.stop().await;
}

#[tokio::test]
async fn a_pool_that_waits_is_not_registered_until_its_devices_are_there() {
    let host = host("two-socket");
    unplug(&host, "0000:17:01.0");
    let text = r#"{"resourceList":[
        {"resourceName":"w","settle":"0s","waitFor":{"devices":2},"selectors":{"pfNames":["ens1f0np0#0-1"]}},
        {"resourceName":"r","selectors":{"pfNames":["ens1f0np0#2"]}}]}"#;
    let node = Node::start(&host, config(text)).await;
    let state = node.eventually("the other pool", |state| state.allocatable("x.io/r") == 1).await;
    assert!(state.resource("x.io/w").registrations.is_empty());
    plug(&host, "0000:17:01.0", PARENT);
    node.look();
    node.eventually("all of them", |state| state.allocatable("x.io/w") == 2).await;
    node.stop().await;
}

// REG-08
#[tokio::test]
async fn a_newcomer_that_dies_leaves_the_pool_with_the_older_instance() {
    let node = Node::with_pool(&host("two-socket"), r#""selectors":{"pfNames":["ens1f0np0#0-1"]}"#).await;
    let (stop, newcomer) = node.another();
    node.eventually("the newcomer has it", |state| state.resource("x.io/r").registrations.len() == 2).await;
    drop(stop);
    newcomer.await.unwrap().unwrap();
    node.eventually("the older one has it again", |state| {
        let resource = state.resource("x.io/r");
        resource.registrations.len() > 2 && resource.connected && state.allocatable("x.io/r") == 2
    })
    .await;
    node.allocate(&["0000:17:01.0"]).await.unwrap();
    node.stop().await;
}

// REG-13, REG-14
#[tokio::test]
async fn in_watcher_mode_the_kubelet_finds_the_pool_and_finds_it_again() {
    let registry = tempfile::tempdir().unwrap();
    let path = registry.path().to_owned();
    let node = Node::start_tuned(&host("two-socket"), config(&list(&[pool("a", "0-1")])), move |options| {
        options.manner = Manner::Watcher(path.clone());
    })
    .await;
    let socket = || -> Option<PathBuf> {
        let mut entries = fs::read_dir(registry.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.find(|path| path.extension().is_some_and(|extension| extension == "sock"))
    };
    for _ in 0..2 {
        node.until("a socket to be found", |_| socket().is_some()).await;
        let found = socket().unwrap();
        assert!(found.file_name().unwrap().to_str().unwrap().contains('@'));
        let mut registration = RegistrationClient::new(Connection::open(&found).await.unwrap());
        let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DevicePlugin", "x.io/a"));
        assert_eq!(info.supported_versions, ["v1beta1"]);
        let endpoint = PathBuf::from(&info.endpoint);
        assert!(endpoint.is_absolute());
        let mut plugin = DevicePluginClient::new(Connection::open(&endpoint).await.unwrap());
        let mut stream = plugin.list_and_watch(api::Empty {}).await.unwrap().into_inner();
        let listed = stream.message().await.unwrap().unwrap();
        assert_eq!(listed.devices.len(), 2);
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        registration.notify_registration_status(status).await.unwrap();
        fs::remove_file(&found).unwrap();
    }
    node.until("a third", |_| socket().is_some()).await;
    node.stop().await;
    assert_eq!(socket(), None, "it is taken away at the end");
}

#[tokio::test]
async fn a_container_whose_group_was_renumbered_is_not_started_with_the_old_one() {
    use pcidp::kubelet::api::deviceplugin::{ContainerAllocateResponse, DeviceSpec};
    let host = host("two-socket");
    let node = Node::with_pool(
        &host,
        r#""preStartCheck":true,"selectors":{"pfNames":["ens1f0np0"],"drivers":["vfio-pci"]}"#,
    )
    .await;
    let state = node.kubelet.state();
    let id = state.resource("x.io/r").devices()[0].id.clone();
    let given = node.allocate(&[&id]).await.unwrap().nodes;
    let group = given.iter().find(|node| *node != "/dev/vfio/vfio").unwrap();
    let answer = |group: &str| {
        let node = |path: &str| DeviceSpec {
            container_path: path.to_owned(),
            host_path: path.to_owned(),
            permissions: "rw".to_owned(),
        };
        let answer = ContainerAllocateResponse {
            devices: vec![node("/dev/vfio/vfio"), node(group)],
            ..ContainerAllocateResponse::default()
        };
        base64(&answer)
    };
    node.holds_with(&[("x.io/r", &[&id], &answer(group))]);
    let ids = vec![id.clone()];
    node.kubelet.pre_start("x.io/r", &ids).await.unwrap();
    node.holds_with(&[("x.io/r", &[&id], &answer("/dev/vfio/999"))]);
    let error = node.kubelet.pre_start("x.io/r", &ids).await.unwrap_err().to_string();
    assert!(error.contains("/dev/vfio/999") && error.contains("delete the pod"), "{error}");
    node.stop().await;
}

fn base64(answer: &api::ContainerAllocateResponse) -> String {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(prost::Message::encode_to_vec(answer))
}

// HLT-02
#[tokio::test]
async fn a_device_under_a_pod_that_changes_its_driver_is_unhealthy_and_stays() {
    let host = host("two-socket");
    let node = Node::with_pool(
        &host,
        r#""settle":"0s","selectors":{"pfNames":["ens1f0np0#0-1"],"drivers":["iavf"]}"#,
    )
    .await;
    let state = node.kubelet.state();
    let id = state.resource("x.io/r").devices()[0].id.clone();
    node.holds(&[("x.io/r", &[&id])]);
    bind(&host, &id, None);
    node.look();
    node.eventually("it is unhealthy", |state| {
        state.resource("x.io/r").devices().iter().any(|device| device.id == id && !device.healthy)
    })
    .await;
    bind(&host, &id, Some("iavf"));
    node.look();
    node.eventually("it is healthy again", |state| {
        state.resource("x.io/r").devices().iter().any(|device| device.id == id && device.healthy)
    })
    .await;
    make_node(&host, "/dev/unrelated");
    node.stop().await;
}

#[tokio::test]
async fn a_pod_of_a_resource_that_nobody_serves_any_more_holds_nothing_by_the_checkpoint_alone() {
    // The kubelet keeps the entries of pods that have ended until it next allocates.
    let mut node = Node::with_pool(&host("two-socket"), r#""selectors":{"pfNames":["ens1f0np0#0-1"]}"#).await;
    node.holds(&[("x.io/old-name", &["0000:17:01.0"])]);
    node.restart_plugin().await;
    node.eventually("it is on offer again", |state| {
        state.resource("x.io/r").registrations.len() > 1 && state.allocatable("x.io/r") == 2
    })
    .await;
    node.stop().await;
}
