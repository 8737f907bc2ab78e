//! Devices that are handed over through the Container Device Interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pcidp::handout::CdiMode;
use pcidp::host::recording::{SnapshotOptions, record};
use prost::Message as _;
use serde_json::{Value, json};

use crate::machine::{config, make_node, regroup, remove_node, unplug};
use crate::node::{Node, host};
use crate::program::Program;

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

/// An answer as the kubelet's checkpoint keeps it.
fn kept_answer(annotations: &[(&str, &str)]) -> String {
    let annotations = annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let answer =
        pcidp::kubelet::api::deviceplugin::ContainerAllocateResponse { annotations, ..Default::default() };
    BASE64_STANDARD.encode(answer.encode_to_vec())
}

/// The checkpoint after a container of the Go plugin's got these.
fn held_from_the_go_plugin(node: &Node, resource: &str, ids: &[&str]) {
    let names: Vec<String> = ids.iter().map(|id| format!("x.io/net-pci={id}")).collect();
    let answer = kept_answer(&[("cdi.k8s.io/x.io_net-pci", &names.join(","))]);
    node.holds_with(&[(resource, ids, &answer)]);
}

// CDI-04
#[tokio::test]
async fn a_container_that_the_go_plugin_served_can_start_again_for_as_long_as_it_runs() {
    let mut node = started(BOTH).await;
    held_from_the_go_plugin(&node, "x.io/a", &["0000:17:01.4"]);
    node.restart_plugin().await;
    let name = "x.io/net-pci=0000:17:01.4";
    node.until("the old kind resolves", |node| resolve(node, &[name]).is_ok()).await;
    assert_eq!(resolve(&node, &[name]).unwrap(), ["/dev/vfio/9", "/dev/vfio/vfio"]);
    assert!(resolve(&node, &["x.io/net-pci=0000:17:01.5"]).is_err(), "only what is held is kept");
    for name in specs(&node) {
        check_spec(&spec(&node, &name));
    }

    node.holds(&[]);
    node.look();
    node.until("it is kept no longer", |node| resolve(node, &[name]).is_err()).await;
    assert_eq!(specs(&node).len(), 3);
    node.stop().await;
}

// CDI-04
#[tokio::test]
async fn a_spec_that_the_go_plugin_left_is_not_named_twice_and_not_missed_once_it_is_gone() {
    let mut node = started(BOTH).await;
    let ids = ["0000:17:01.4", "0000:17:01.5"];
    held_from_the_go_plugin(&node, "x.io/a", &ids);
    let left = node.directory().join("cdi/sriov-dp-1.yaml");
    fs::write(
        &left,
        "cdiVersion: 0.5.0\nkind: x.io/net-pci\ndevices:\n- name: \"0000:17:01.4\"\n  containerEdits: {}\n",
    )
    .unwrap();
    node.restart_plugin().await;
    node.until("the other resolves", |node| resolve(node, &["x.io/net-pci=0000:17:01.5"]).is_ok()).await;
    assert!(resolve(&node, &["x.io/net-pci=0000:17:01.4"]).is_err(), "the spec in YAML has it");
    fs::remove_file(&left).unwrap();
    node.look();
    let both = ids.map(|id| format!("x.io/net-pci={id}"));
    node.until("both resolve", |node| resolve(node, &both.each_ref().map(String::as_str)).is_ok()).await;
    node.stop().await;
}

// CDI-03, CDI-04
#[tokio::test]
async fn the_spec_of_a_pool_that_is_gone_goes_when_no_container_has_a_device_of_it() {
    let mut node = started(BOTH).await;
    let old = |id: &str| {
        json!({"cdiVersion": "0.5.0", "kind": "x.io/pcidp-old", "devices": [{"name": id,
            "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/9", "permissions": "rw"}]}}]})
        .to_string()
    };
    let file = node.directory().join("cdi/pcidp-x.io_pcidp-old.json");
    let foreign = node.directory().join("cdi/pcidp-y.io_pcidp-b.json");
    fs::write(&file, old("0000:17:01.4")).unwrap();
    fs::write(&foreign, old("0000:ff:01.4")).unwrap();
    let answer = kept_answer(&[("cdi.k8s.io/x", "x.io/pcidp-old=0000:17:01.4")]);
    node.holds_with(&[("x.io/old", &["0000:17:01.4"], &answer)]);
    node.restart_plugin().await;
    node.eventually("registered again", |state| state.resource("x.io/a").registrations.len() > 1).await;
    assert!(file.exists());
    node.holds(&[]);
    node.look();
    node.until("the spec is gone", |_| !file.exists()).await;
    assert!(foreign.exists(), "another instance's devices are its own");
    node.stop().await;
}

// CDI-01
#[tokio::test]
async fn the_nodes_of_three_pools_are_all_in_the_container_that_asked_for_them() {
    for mode in [
        CdiMode { field: true, annotations: true },
        CdiMode { field: true, annotations: false },
        CdiMode { field: false, annotations: true },
    ] {
        let node = started(Some(mode)).await;
        let mut names: BTreeSet<String> = BTreeSet::new();
        // The kubelet merges the annotations of all answers by their keys.
        let mut annotations: BTreeMap<String, String> = BTreeMap::new();
        for (resource, ids) in [
            ("x.io/a", ["0000:17:01.4", "0000:17:01.5"]),
            ("x.io/b", ["0000:17:01.6", "0000:17:01.7"]),
            ("x.io/10G", ["0000:17:11.0", "0000:17:11.1"]),
        ] {
            let answer = node.allocate_each(resource, &[&ids]).await.unwrap().remove(0);
            names.extend(answer.cdi_devices);
            annotations.extend(answer.annotations);
        }
        names.extend(annotations.values().flat_map(|value| value.split(',')).map(str::to_owned));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let groups = [9, 10, 11, 12, 13, 14].map(|group| format!("/dev/vfio/{group}"));
        let mut expected: Vec<String> = groups.into_iter().chain(["/dev/vfio/vfio".to_owned()]).collect();
        expected.sort();
        assert_eq!(resolve(&node, &names).unwrap(), expected, "{mode:?}");
        node.stop().await;
    }
}

/// What a runtime does: the nodes of the named devices. A device that no spec has, or two, cannot be had.
fn resolve(node: &Node, names: &[&str]) -> Result<Vec<String>, String> {
    let mut nodes = BTreeSet::new();
    let all: Vec<Value> =
        specs(node).iter().filter(|name| name.ends_with(".json")).map(|name| spec(node, name)).collect();
    for name in names {
        let (kind, id) = name.split_once('=').unwrap();
        let found: Vec<&Value> = all
            .iter()
            .filter(|spec| spec["kind"] == kind)
            .flat_map(|spec| spec["devices"].as_array().unwrap())
            .filter(|device| device["name"] == id)
            .collect();
        let [device] = found[..] else { return Err(format!("{name} is in {} specs", found.len())) };
        for node in device["containerEdits"]["deviceNodes"].as_array().unwrap() {
            nodes.insert(node["path"].as_str().unwrap().to_owned());
        }
    }
    Ok(nodes.into_iter().collect())
}

/// The rules of the published schema and of the specification for what stands in a spec of ours; any other member fails.
/// <https://github.com/cncf-tags/container-device-interface/blob/main/schema/defs.json> and `SPEC.md` beside it.
fn check_spec(spec: &Value) {
    let members = |value: &Value, required: &[&str], optional: &[&str]| {
        let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
        for name in required {
            assert!(object.contains_key(*name), "{name} is missing in {value}");
        }
        for name in object.keys() {
            assert!(
                [required, optional].concat().contains(&name.as_str()),
                "{name} does not belong in {value}"
            );
        }
    };
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no string: {value}")).to_owned();
    let word = |word: &str, inner: &[char]| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || inner.contains(&c);
        word.len() > 1
            && word.chars().all(is_inner)
            && word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    members(spec, &["cdiVersion", "kind", "devices"], &[]);
    // `hostPath` came with 0.5.0.
    assert_eq!(spec["cdiVersion"], "0.5.0");
    let kind = text(&spec["kind"]);
    let (vendor, class) = kind.split_once('/').unwrap();
    assert!(word(vendor, &['-', '_', '.']) && word(class, &['-', '_']), "{kind}");
    let devices = spec["devices"].as_array().unwrap();
    assert!(!devices.is_empty());
    let mut ids = BTreeSet::new();
    for device in devices {
        members(device, &["name", "containerEdits"], &[]);
        let name = text(&device["name"]);
        let is_inner = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.', ':'].contains(&c);
        assert!(!name.is_empty() && name.chars().all(is_inner), "{name}");
        assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
        assert!(name.ends_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
        assert!(ids.insert(name.clone()), "{name} is there twice");
        members(&device["containerEdits"], &["deviceNodes"], &[]);
        let nodes = device["containerEdits"]["deviceNodes"].as_array().unwrap();
        assert!(!nodes.is_empty(), "{name} has no edit");
        for node in nodes {
            members(node, &["path", "permissions"], &["hostPath"]);
            assert!(text(&node["path"]).starts_with("/dev/"));
            assert!(node.get("hostPath").is_none_or(|path| text(path).starts_with("/dev/")));
            assert_eq!(node["permissions"], "rw");
        }
    }
}

// CDI-03
#[tokio::test]
async fn specs_of_every_kind_of_device_keep_to_the_published_schema() {
    let reader = Program::build("cdi");
    let two_socket = host("two-socket");
    make_node(&two_socket, "/dev/infiniband/rdma_cm");
    make_node(&two_socket, "/dev/vhost-net");
    let subfunctions = host("subfunctions");
    make_node(&subfunctions, "/dev/infiniband/rdma_cm");
    for (host, pool) in [
        (two_socket.clone(), r#""selectors":{"drivers":["vfio-pci"],"needVhostNet":true}"#),
        (two_socket.clone(), r#""selectors":{"isRdma":true}"#),
        (two_socket, r#""selectors":{"drivers":["igb_uio"]}"#),
        (subfunctions, r#""deviceType":"auxNetDevice","selectors":{"auxTypes":["sf"],"isRdma":true}"#),
        (host("kunpeng-920"), r#""deviceType":"accelerator","selectors":{"vendors":["19e5"]}"#),
        (host("noiommu-1-vfio"), r#""selectors":{"drivers":["vfio-pci"]}"#),
        (host("soft-0-vdpa-rdma-virtual"), r#""selectors":{"vdpaType":"vhost"}"#),
    ] {
        let text =
            format!(r#"{{"resourceList":[{{"resourceName":"10.G","resourcePrefix":"3com.io",{pool}}}]}}"#);
        let node = Node::start_with(&host, config(&text), BOTH).await;
        node.eventually(pool, |state| state.allocatable("3com.io/10.G") > 0).await;
        let names = specs(&node);
        assert_eq!(names.len(), 1, "{pool}");
        check_spec(&spec(&node, &names[0]));
        if let Some(reader) = &reader {
            let read = reader.command().arg(node.directory().join("cdi")).output().unwrap();
            let (devices, complaint) =
                (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
            assert!(read.status.success(), "{pool}: {complaint}");
            let devices: Vec<(&str, usize)> = devices
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(name, nodes)| (name, nodes.parse().unwrap()))
                .collect();
            let ours = spec(&node, &names[0]);
            let expected = ours["devices"]
                .as_array()
                .unwrap()
                .iter()
                .map(|device| device["containerEdits"]["deviceNodes"].as_array().unwrap().len());
            assert_eq!(
                devices.iter().map(|device| device.1).sum::<usize>(),
                expected.sum::<usize>(),
                "{devices:?}"
            );
        }
        node.stop().await;
    }
}

// CDI-04
#[test]
fn specs_are_whole_and_every_device_resolves_wherever_the_plugin_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::write(path("config.json"), POOLS).unwrap();
    for directory in ["plugins", "devinfo"] {
        fs::create_dir(path(directory)).unwrap();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Every time the groups have other numbers, so that every start writes every spec.
    let machine = |round: u32| {
        let host = host("two-socket");
        for id in ["0000:17:01.4", "0000:17:01.6", "0000:17:11.0"] {
            regroup(&host, id, 100 + round);
        }
        let file = path("machine.host");
        fs::write(&file, record(&host, SnapshotOptions::default()).to_string()).unwrap();
        file
    };
    let names = ["pcidp-x.io_pcidp-10G", "pcidp-x.io_pcidp-a", "pcidp-x.io_pcidp-b"];
    let start = |round: u32| {
        Command::new(env!("CARGO_BIN_EXE_pcidp"))
            .current_dir(root)
            .args(["run", "--use-cdi", "--resource-prefix", "x.io", "--log-level", "off", "--host-root"])
            .arg(machine(round))
            .arg("--config-file")
            .arg(path("config.json"))
            .arg("--device-plugin-dir")
            .arg(path("plugins"))
            .arg("--device-info-dir")
            .arg(path("devinfo"))
            .arg("--cdi-dir")
            .arg(path("cdi"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let read = |name: &str| -> Option<Value> {
        let text = fs::read_to_string(path("cdi").join(format!("{name}.json"))).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}")))
    };
    let mut plugin = start(0);
    while !names.iter().all(|name| read(name).is_some()) {
        assert!(plugin.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    plugin.kill().unwrap();
    plugin.wait().unwrap();
    for round in 1..=24 {
        let mut plugin = start(round);
        // Killed as soon as so many specs are those of the other machine: in the middle of its writing.
        let begun = Instant::now();
        let before: Vec<Value> = names.iter().filter_map(|name| read(name)).collect();
        let changed =
            || names.iter().zip(&before).filter(|(name, spec)| read(name).as_ref() != Some(spec)).count();
        while changed() <= round as usize % 3 && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        plugin.kill().unwrap();
        plugin.wait().unwrap();
        for name in names {
            let spec = read(name).unwrap_or_else(|| panic!("{name} is gone after round {round}"));
            check_spec(&spec);
            let devices = spec["devices"].as_array().unwrap().len();
            assert_eq!(devices, if name.ends_with("10G") { 4 } else { 2 }, "{name}");
        }
        let others = fs::read_dir(path("cdi")).unwrap().map(|entry| entry.unwrap().file_name());
        let stray: Vec<_> = others
            .filter(|name| {
                name.to_str().is_some_and(|name| name.ends_with(".json") || name.ends_with(".yaml"))
            })
            .collect();
        assert_eq!(stray.len(), names.len(), "a runtime would read {stray:?}");
    }
}
