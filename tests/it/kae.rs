//! Kunpeng accelerators.

use std::fs;

use serde_json::json;
use tonic::Code;

use crate::machine::{bind, config, function, make_node, offered, only, recorded, remove_node, write};
use crate::node::{Node, POOL, host};

const ENGINES: &str = r#"{"resourceList":[
    {"resourceName":"hpre","deviceType":"accelerator","selectors":{"vendors":["19e5"],"devices":["a258","a259"],"drivers":["hisi_hpre"]}},
    {"resourceName":"sec","deviceType":"accelerator","selectors":{"vendors":["19e5"],"devices":["a255","a256"],"drivers":["hisi_sec2"]}},
    {"resourceName":"zip","deviceType":"accelerator","selectors":{"vendors":["19e5"],"devices":["a250","a251"],"drivers":["hisi_zip"]}}]}"#;

/// Members of the pool `r` of HPRE functions on their kernel driver.
const HPRE: &str =
    r#""deviceType":"accelerator","selectors":{"devices":["a258","a259"],"drivers":["hisi_hpre"]}"#;
const HPRE_PF: &str = r#""deviceType":"accelerator","selectors":{"devices":["a258","a259"],"functionTypes":["pf","vf"],"drivers":["hisi_hpre"]}"#;

// KAE-01, DSC-14
#[test]
fn every_engine_of_every_recording_is_found_in_its_pool() {
    // HPRE, SEC, ZIP.
    let expected: [(&str, [&[&str]; 3]); 8] = [
        (
            "kunpeng-920",
            [
                &["0000:79:00.1", "0000:79:00.2", "0000:b9:00.0"],
                &["0000:76:00.0", "0000:b6:00.0"],
                &["0000:75:00.0", "0000:b5:00.0"],
            ],
        ),
        ("kunpeng-920-isolated", [&["0000:79:00.1", "0000:79:00.2", "0000:b9:00.0"], &[], &[]]),
        ("kunpeng-920-kae1", [&["0000:79:00.1"], &[], &[]]),
        ("kunpeng-920-mode0", [&["0000:79:00.1"], &[], &[]]),
        ("kunpeng-920-noiommu", [&["0000:79:00.1"], &[], &[]]),
        ("kunpeng-vm", [&["0000:05:00.0", "0000:06:00.0"], &[], &[]]),
        ("guest-no-physfn", [&["0000:00:06.0"], &[], &[]]),
        (
            "kae-0-hpre-vfs",
            [&["0000:21:00.0", "0000:41:10.0", "0000:41:10.2"], &["0000:01:00.0"], &["0000:42:00.0"]],
        ),
    ];
    for (name, pools) in expected {
        let found = offered(&host(name), ENGINES);
        for (pool, ids) in ["hpre", "sec", "zip"].iter().zip(pools) {
            assert_eq!(found[*pool], *ids, "{pool} of {name}");
        }
    }
}

// KAE-01
#[test]
fn a_pool_without_selectors_takes_engines_of_every_kind() {
    let found = only(&host("kunpeng-920"), r#""deviceType":"accelerator""#);
    assert_eq!(found.len(), 8, "all but the PF with VFs: {found:?}");
}

// KAE-02
#[tokio::test]
async fn each_engine_hands_over_its_own_node_under_its_own_name() {
    for (name, nodes) in [
        (
            "kunpeng-920",
            vec![
                ("x.io/hpre", "0000:79:00.1", "hisi_hpre-6", "rsa,dh"),
                ("x.io/hpre", "0000:79:00.2", "hisi_hpre-7", "rsa,dh"),
                ("x.io/hpre", "0000:b9:00.0", "hisi_hpre-3", "rsa,dh"),
                ("x.io/sec", "0000:76:00.0", "hisi_sec2-0", "cipher,digest"),
                ("x.io/zip", "0000:75:00.0", "hisi_zip-4", "zlib,gzip"),
            ],
        ),
        (
            "kae-0-hpre-vfs",
            vec![
                ("x.io/hpre", "0000:41:10.0", "hisi_hpre-4", "rsa,dh"),
                ("x.io/hpre", "0000:41:10.2", "hisi_hpre-5", "rsa,dh"),
                ("x.io/hpre", "0000:21:00.0", "hisi_hpre-1", "rsa,dh"),
                ("x.io/sec", "0000:01:00.0", "hisi_sec2-2", "cipher,digest"),
                ("x.io/zip", "0000:42:00.0", "hisi_zip-3", "zlib,gzip"),
            ],
        ),
    ] {
        let node = Node::start(&host(name), config(ENGINES)).await;
        for (resource, id, engine, algorithms) in nodes {
            node.eventually(resource, |state| state.allocatable(resource) > 0).await;
            let answer = node.allocate_each(resource, &[&[id]]).await.unwrap().remove(0);
            assert_eq!(answer.nodes, [format!("/dev/{engine}")], "{id}");
            let variable = format!("PCIDEVICE_{}", resource.replace(['.', '/'], "_").to_uppercase());
            assert_eq!(answer.variables[&variable], id);
            let info: serde_json::Value =
                serde_json::from_str(&answer.variables[&format!("{variable}_INFO")]).unwrap();
            assert_eq!(
                info[id],
                json!({"generic": {"deviceID": id}, "uacce": {"algorithms": algorithms, "api": "hisi_qm_v2",
                    "mount": format!("/dev/{engine}"), "name": engine}})
            );
        }
        node.stop().await;
    }
}

// KAE-02
#[tokio::test]
async fn a_renumbered_engine_is_resolved_at_the_call() {
    let host = host("kunpeng-920");
    let node = Node::with_pool(&host, HPRE).await;
    let uacce = function(&host, "0000:79:00.1").join("uacce");
    fs::rename(uacce.join("hisi_hpre-6"), uacce.join("hisi_hpre-11")).unwrap();
    make_node(&host, "/dev/hisi_hpre-11");
    let answer = node.allocate(&["0000:79:00.1", "0000:79:00.2"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/hisi_hpre-11", "/dev/hisi_hpre-7"]);
    assert_eq!(answer.info("0000:79:00.1")["uacce"]["name"], "hisi_hpre-11");
    node.stop().await;
}

// KAE-03
#[tokio::test]
async fn an_engine_loaded_with_uacce_mode_0_is_unhealthy_and_says_why() {
    let host = host("kunpeng-920-mode0");
    let text = format!(r#"{{"resourceList":[{{"resourceName":"r",{HPRE}}}]}}"#);
    let node = Node::start(&host, config(&text)).await;
    node.lists(&[("0000:79:00.1", false)]).await;
    let error = node.allocate(&["0000:79:00.1"]).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::FailedPrecondition));
    assert!(error.to_string().contains("uacce_mode=1"), "{error}");
    // The driver is loaded again with uacce_mode=1.
    let entry = function(&host, "0000:79:00.1").join("uacce/hisi_hpre-1");
    write(&entry.join("api"), "hisi_qm_v2\n");
    make_node(&host, "/dev/hisi_hpre-1");
    node.look();
    node.lists(&[("0000:79:00.1", true)]).await;
    assert_eq!(node.allocate(&["0000:79:00.1"]).await.unwrap().nodes, ["/dev/hisi_hpre-1"]);
    // And with 0 once more, of which the daemon has not heard.
    fs::remove_dir_all(function(&host, "0000:79:00.1").join("uacce")).unwrap();
    let error = node.allocate(&["0000:79:00.1"]).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::FailedPrecondition));
    node.stop().await;
}

#[tokio::test]
async fn an_engine_without_its_node_is_unhealthy() {
    let host = host("kunpeng-920");
    let node = Node::with_pool(&host, HPRE).await;
    remove_node(&host, "/dev/hisi_hpre-7");
    node.look();
    node.lists(&[("0000:79:00.1", true), ("0000:79:00.2", false), ("0000:b9:00.0", true)]).await;
    let error = node.allocate(&["0000:79:00.2"]).await.unwrap_err().to_string();
    assert!(error.contains("/dev/hisi_hpre-7 does not exist"), "{error}");
    node.stop().await;
}

// KAE-02
#[tokio::test]
async fn attributes_below_attrs_are_read() {
    let host = host("kunpeng-920-kae1");
    let node = Node::with_pool(&host, HPRE).await;
    let answer = node.allocate(&["0000:79:00.1"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/hisi_hpre-2"]);
    assert_eq!(answer.info("0000:79:00.1")["uacce"]["algorithms"], "rsa,dh");
    write(&function(&host, "0000:79:00.1").join("uacce/hisi_hpre-2/attrs/isolate"), "1\n");
    node.look();
    node.lists(&[("0000:79:00.1", false)]).await;
    node.stop().await;
}

// KAE-01
#[test]
fn the_raid_engine_is_offered_only_by_id_or_class() {
    let host = host("kunpeng-920-kae1");
    assert!(!only(&host, r#""deviceType":"accelerator""#).contains(&"0000:78:01.0".to_owned()));
    for selector in [r#""devices":["a25a"]"#, r#""classes":["0104"]"#] {
        let members = format!(r#""deviceType":"accelerator","selectors":{{{selector}}}"#);
        assert_eq!(only(&host, &members), ["0000:78:01.0"], "{selector}");
    }
}

// KAE-01
#[test]
fn a_processors_own_security_engine_is_offered_only_by_id_or_class() {
    let host = host("kunpeng-920");
    let security = "0000:b9:00.0";
    write(&function(&host, security).join("class"), "0x108000\n");
    write(&function(&host, security).join("vendor"), "0x1022\n");
    write(&function(&host, security).join("device"), "0x1456\n");
    assert!(!only(&host, r#""deviceType":"accelerator""#).contains(&security.to_owned()));
    let by_vendor = r#""deviceType":"accelerator","selectors":{"vendors":["1022"]}"#;
    assert!(only(&host, by_vendor).is_empty());
    for selector in
        [r#""devices":["1456"]"#, r#""classes":["1080"]"#, r#""classes":["10"],"vendors":["1022"]"#]
    {
        let members = format!(r#""deviceType":"accelerator","selectors":{{{selector}}}"#);
        assert_eq!(only(&host, &members), [security], "{selector}");
    }
}

// SEC-02
#[tokio::test]
async fn engines_without_an_smmu_are_handed_out_unless_the_pool_refuses() {
    let host = host("kunpeng-920-noiommu");
    let node = Node::with_pool(&host, HPRE).await;
    let answer = node.allocate(&["0000:79:00.1"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/hisi_hpre-1"]);
    assert_eq!(answer.info("0000:79:00.1")["uacce"]["api"], "hisi_qm_v2_noiommu");
    node.stop().await;
    assert!(only(&host, &format!(r#"{HPRE},"allowNoIommu":false"#)).is_empty());
    assert_eq!(only(&crate::node::host("kunpeng-920"), &format!(r#"{HPRE},"allowNoIommu":false"#)).len(), 3);
}

// KAE-06, KAE-09, HLT-06
#[tokio::test]
async fn an_isolated_engine_is_unhealthy_with_its_vfs_until_it_is_not() {
    let host = host("kunpeng-920-isolated");
    let node = Node::with_pool(&host, HPRE_PF).await;
    let listed = |well| {
        [("0000:79:00.0", well), ("0000:79:00.1", well), ("0000:79:00.2", well), ("0000:b9:00.0", true)]
    };
    node.lists(&listed(false)).await;
    let error = node.allocate(&["0000:79:00.1"]).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::FailedPrecondition));
    assert!(error.to_string().contains("hisi_hpre-2 is isolated"), "{error}");
    let isolate = |value: &str| {
        for (address, engine) in [("79:00.0", 0), ("79:00.1", 2), ("79:00.2", 3)] {
            let entry = function(&host, &format!("0000:{address}")).join(format!("uacce/hisi_hpre-{engine}"));
            write(&entry.join("isolate"), value);
        }
    };
    isolate("0\n");
    node.look();
    node.lists(&listed(true)).await;
    isolate("1\n");
    node.look();
    node.lists(&listed(false)).await;
    node.stop().await;
}

// KAE-06
#[tokio::test]
async fn an_engine_without_a_free_queue_is_busy_and_not_unhealthy() {
    let host = host("kunpeng-920");
    let node = Node::with_pool(&host, HPRE).await;
    let entry = function(&host, "0000:79:00.1").join("uacce/hisi_hpre-6");
    write(&entry.join("available_instances"), "0\n");
    write(&function(&host, "0000:79:00.2").join("uacce/hisi_hpre-7/dev_state"), "-1\n");
    node.look();
    node.lists(&[("0000:79:00.1", true), ("0000:79:00.2", false), ("0000:b9:00.0", true)]).await;
    node.allocate(&["0000:79:00.1"]).await.unwrap();
    let error = node.allocate(&["0000:79:00.2"]).await.unwrap_err().to_string();
    assert!(error.contains("stopped"), "{error}");
    node.stop().await;
}

#[tokio::test]
async fn attributes_that_cannot_be_read_are_no_sickness() {
    let host = host("kunpeng-920");
    for attribute in ["isolate", "dev_state", "available_instances", "algorithms", "api"] {
        fs::remove_file(function(&host, "0000:79:00.1").join("uacce/hisi_hpre-6").join(attribute)).unwrap();
    }
    let node = Node::with_pool(&host, HPRE).await;
    node.lists(&[("0000:79:00.1", true), ("0000:79:00.2", true), ("0000:b9:00.0", true)]).await;
    assert_eq!(node.allocate(&["0000:79:00.1"]).await.unwrap().nodes, ["/dev/hisi_hpre-6"]);
    node.stop().await;
}

#[test]
fn an_engine_with_vfs_is_offered_only_where_pfs_are_asked_for() {
    let host = host("kunpeng-920");
    let pf = "0000:79:00.0".to_owned();
    assert!(!only(&host, HPRE).contains(&pf));
    assert!(only(&host, HPRE_PF).contains(&pf));
    let by_address = r#""deviceType":"accelerator","selectors":{"pciAddresses":["79:00.0"]}"#;
    assert!(only(&host, by_address).is_empty());
    // Other accelerators with VFs are offered, as in the Go plugin.
    let others = only(
        &crate::node::host("two-socket"),
        r#""deviceType":"accelerator","selectors":{"vendors":["8086"]}"#,
    );
    assert!(others.contains(&"0000:d8:00.0".to_owned()), "{others:?}");
}

// KAE-10, ALC-06
#[tokio::test]
async fn a_vf_for_a_virtual_machine_hands_over_its_group_and_no_engine() {
    for driver in ["vfio-pci", "hisi_acc_vfio_pci"] {
        let host = host("kunpeng-920");
        bind(&host, "0000:79:00.3", Some(driver));
        let members = format!(
            r#""deviceType":"accelerator","selectors":{{"devices":["a259"],"drivers":["{driver}"]}}"#
        );
        let node = Node::with_pool(&host, &members).await;
        node.lists(&[("0000:79:00.3", true)]).await;
        let answer = node.allocate(&["0000:79:00.3"]).await.unwrap();
        assert_eq!(answer.nodes, ["/dev/vfio/vfio", "/dev/vfio/42"]);
        assert_eq!(answer.info("0000:79:00.3")["vfio"]["dev-mount"], "/dev/vfio/42");
        assert!(answer.info("0000:79:00.3").get("uacce").is_none());
        node.stop().await;
    }
}

// KAE-02
#[tokio::test]
async fn in_a_guest_an_engine_is_a_vf_by_its_id_and_has_no_topology() {
    let node = Node::with_pool(
        &host("kunpeng-vm"),
        r#""deviceType":"accelerator","selectors":{"functionTypes":["vf"],"drivers":["hisi_hpre"]}"#,
    )
    .await;
    node.lists(&[("0000:05:00.0", true), ("0000:06:00.0", true)]).await;
    let state = node.kubelet.state();
    assert!(state.resource(POOL).devices().iter().all(|device| device.numa_node.is_none()));
    assert_eq!(node.allocate(&["0000:06:00.0"]).await.unwrap().nodes, ["/dev/hisi_hpre-1"]);
    node.stop().await;
}

// KAE-08
#[test]
fn an_engine_on_another_driver_is_not_mixed_into_the_pool() {
    let host = host("kunpeng-920");
    bind(&host, "0000:79:00.1", Some("pci-stub"));
    assert_eq!(offered(&host, ENGINES)["hpre"], ["0000:79:00.2", "0000:b9:00.0"]);
    assert!(recorded("kunpeng-920").contains("vfio-pci"));
}

/// The names in the view that an answer mounts.
fn view(answer: &crate::node::Answer) -> Vec<String> {
    let [(view, class)] = &answer.mounts[..] else { panic!("{:?}", answer.mounts) };
    assert_eq!(class.to_str(), Some("/sys/class/uacce"));
    let entries = fs::read_dir(view).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// KAE-05
#[tokio::test]
async fn a_container_with_two_engines_has_one_view_of_both() {
    let node = Node::with_pool(&host("kunpeng-920"), HPRE).await;
    let answer = node.allocate(&["0000:b9:00.0", "0000:79:00.2"]).await.unwrap();
    assert_eq!(view(&answer), ["hisi_hpre-3", "hisi_hpre-7"]);
    let again = node.allocate(&["0000:79:00.2", "0000:b9:00.0"]).await.unwrap();
    assert_eq!(again.mounts, answer.mounts, "the view is that of the devices, in whatever order");
    node.stop().await;
}

// KAE-05
#[tokio::test]
async fn a_view_is_a_mount_of_the_answer_also_with_cdi() {
    let text = format!(r#"{{"resourceList":[{{"resourceName":"r",{HPRE}}}]}}"#);
    let mode = pcidp::handout::CdiMode { field: true, annotations: true };
    let node = Node::start_with(&host("kunpeng-920"), config(&text), Some(mode)).await;
    node.eventually("the pool", |state| state.allocatable(POOL) > 0).await;
    let answer = node.allocate(&["0000:79:00.2"]).await.unwrap();
    assert_eq!(view(&answer), ["hisi_hpre-7"]);
    assert!(answer.nodes.is_empty());
    assert_eq!(answer.cdi_devices, ["x.io/pcidp-r=0000:79:00.2"]);
    node.stop().await;
}

// KAE-02, KAE-05
#[tokio::test]
async fn the_view_of_a_running_container_follows_engines_that_were_renumbered_while_no_plugin_ran() {
    let host = host("kunpeng-920");
    let mut node = Node::with_pool(&host, HPRE).await;
    let answer = node.allocate(&["0000:79:00.1"]).await.unwrap();
    assert_eq!(view(&answer), ["hisi_hpre-6"]);
    node.holds(&[(POOL, &["0000:79:00.1"])]);
    let uacce = function(&host, "0000:79:00.1").join("uacce");
    fs::rename(uacce.join("hisi_hpre-6"), uacce.join("hisi_hpre-11")).unwrap();
    let class = host.path().join("sys/class/uacce");
    let target = fs::read_link(class.join("hisi_hpre-6")).unwrap().display().to_string();
    crate::machine::link(&class.join("hisi_hpre-11"), &target.replace("hisi_hpre-6", "hisi_hpre-11"));
    fs::remove_file(class.join("hisi_hpre-6")).unwrap();
    make_node(&host, "/dev/hisi_hpre-11");
    node.restart_plugin().await;
    node.until("the view has the new name", |_| view(&answer) == ["hisi_hpre-11"]).await;
    node.stop().await;
}

// KAE-05
#[tokio::test]
async fn what_a_pool_says_of_the_view_counts() {
    let host = host("kunpeng-920");
    let whole = Node::with_pool(&host, &format!(r#"{HPRE},"uacceView":"host""#)).await;
    assert!(whole.allocate(&["0000:79:00.1"]).await.unwrap().mounts.is_empty());
    whole.stop().await;
    let text = format!(
        r#"{{"resourceList":[{{"resourceName":"r",{HPRE},"uacceView":"filtered"}},
        {{"resourceName":"sec","deviceType":"accelerator","selectors":{{"drivers":["hisi_sec2"]}}}}]}}"#
    );
    let node = Node::start(&host, config(&text)).await;
    node.eventually("the pool", |state| state.allocatable(POOL) > 0).await;
    assert_eq!(view(&node.allocate(&["0000:79:00.1"]).await.unwrap()), ["hisi_hpre-6"]);
    node.stop().await;
}

// KAE-02
#[test]
fn whatever_vanishes_from_an_engine_during_a_scan_the_others_are_found() {
    let host = host("kunpeng-920");
    let before = offered(&host, ENGINES);
    let directory = function(&host, "0000:79:00.1");
    for entry in fs::read_dir(&directory).unwrap() {
        let (place, aside) = (entry.unwrap().path(), host.path().join("aside"));
        fs::rename(&place, &aside).unwrap();
        let after = offered(&host, ENGINES);
        for (pool, ids) in &before {
            for id in ids.iter().filter(|id| *id != "0000:79:00.1") {
                assert!(after[pool].contains(id), "{id} is gone without {}", place.display());
            }
        }
        fs::rename(&aside, &place).unwrap();
    }
    crate::machine::unplug(&host, "0000:79:00.1");
    assert_eq!(offered(&host, ENGINES)["hpre"], ["0000:79:00.2", "0000:b9:00.0"]);
}

// KAE-07
#[test]
fn a_server_with_the_drivers_and_without_an_engine_is_told_of_the_licence() {
    let place = tempfile::tempdir().unwrap();
    for directory in ["sys/bus/pci/devices", "sys/class/uacce"] {
        fs::create_dir_all(place.path().join(directory)).unwrap();
    }
    let explained = || {
        let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_pcidp"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["explain", "kae.hpre", "--config-file", "examples/kae-hpre.json", "--host-root"])
            .arg(place.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(explained().contains("only with a KAE licence"), "{}", explained());
    fs::remove_dir(place.path().join("sys/class/uacce")).unwrap();
    assert!(!explained().contains("licence"), "a host without the drivers is no Kunpeng server");
}
