//! What a container receives, and when it is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use pcidp::kubelet::stand_in::CallError;
use serde_json::json;
use tonic::Code;

use crate::machine::{
    bind, config, function, lay_out, link, make_node, recorded, regroup, remove_node, unplug, write,
};
use crate::node::{Answer, Node, POOL, host};

const IAVF: &str = r#""selectors":{"pfNames":["ens1f0np0#0-3"]}"#;
const VFIO: &str = r#""selectors":{"pfNames":["ens1f0np0#4-7"]}"#;

/// The refusal's code, and a check that it names the id.
fn refusal(answer: Result<Answer, CallError>, id: &str) -> (Code, String) {
    let error = answer.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(id), "{text} does not name {id}");
    (error.code().unwrap(), text)
}

// ALC-01
#[tokio::test]
async fn an_unknown_id_is_refused_by_name_and_nothing_is_written() {
    for (members, good) in [(IAVF, "0000:17:01.0"), (r#""deviceType":"accelerator""#, "0000:d8:00.1")] {
        let node = Node::with_pool(&host("two-socket"), members).await;
        for unknown in ["0000:ff:1f.7", "", "mlx5_core.sf.1", "0000:17:01.0 "] {
            let (code, _) = refusal(node.allocate(&[good, unknown]).await, unknown);
            assert_eq!(code, Code::InvalidArgument);
        }
        // A good container beside a bad one receives nothing either.
        let several = node.allocate_each(POOL, &[&[good], &["0000:ff:1f.7"]]).await;
        assert_eq!(several.unwrap_err().code(), Some(Code::InvalidArgument));
        assert!(node.files().is_empty(), "{:?}", node.files());
        node.stop().await;
    }
}

// ALC-01
#[tokio::test]
async fn a_device_of_another_pool_is_unknown() {
    let text = r#"{"resourceList":[{"resourceName":"a","selectors":{"pfNames":["ens1f0np0#0"]}},
        {"resourceName":"r","selectors":{"pfNames":["ens1f0np0#1"]}}]}"#;
    let node = Node::start(&host("two-socket"), config(text)).await;
    node.lists(&[("0000:17:01.1", true)]).await;
    let (code, text) = refusal(node.allocate(&["0000:17:01.0"]).await, "0000:17:01.0");
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("x.io/r"), "{text}");
    node.stop().await;
}

// ALC-01
#[tokio::test]
async fn an_id_that_is_named_twice_for_one_container_is_refused() {
    let node = Node::with_pool(&host("two-socket"), IAVF).await;
    let (code, _) = refusal(node.allocate(&["0000:17:01.0", "0000:17:01.0"]).await, "0000:17:01.0");
    assert_eq!(code, Code::InvalidArgument);
    assert!(node.files().is_empty());
    node.stop().await;
}

// ALC-01
#[tokio::test]
async fn an_unhealthy_device_is_refused_with_the_reason_and_nothing_is_written() {
    let host = host("two-socket");
    let node = Node::with_pool(&host, VFIO).await;
    // Not looked at again: the call itself finds out.
    remove_node(&host, "/dev/vfio/10");
    let (code, text) = refusal(node.allocate(&["0000:17:01.4", "0000:17:01.5"]).await, "0000:17:01.5");
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("/dev/vfio/10 does not exist"), "{text}");
    assert!(node.files().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn containers_are_answered_in_order_and_ids_are_sorted_as_strings() {
    let node = Node::with_pool(&host("two-socket"), IAVF).await;
    let containers: [&[&str]; 3] = [&["0000:17:01.3"], &["0000:17:01.2", "0000:17:01.0"], &[]];
    let answers = node.allocate_each(POOL, &containers).await.unwrap();
    let ids: Vec<&str> = answers.iter().map(Answer::ids).collect();
    assert_eq!(ids, ["0000:17:01.3", "0000:17:01.0,0000:17:01.2", ""]);
    assert_eq!(answers[1].info("0000:17:01.2"), json!({"generic": {"deviceID": "0000:17:01.2"}}));
    node.stop().await;
}

#[tokio::test]
async fn an_allocation_can_be_asked_twice() {
    let node = Node::with_pool(&host("two-socket"), VFIO).await;
    let first = node.allocate(&["0000:17:01.4", "0000:17:01.5"]).await.unwrap();
    let files = node.files();
    let again = node.allocate(&["0000:17:01.5", "0000:17:01.4"]).await.unwrap();
    assert_eq!((first, files), (again, node.files()));
    node.stop().await;
}

// DSC-02
#[tokio::test]
async fn a_driver_that_changed_since_the_scan_refuses_the_device() {
    let host = host("two-socket");
    let node = Node::with_pool(&host, IAVF).await;
    bind(&host, "0000:17:01.0", Some("vfio-pci"));
    let (code, text) = refusal(node.allocate(&["0000:17:01.0"]).await, "0000:17:01.0");
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("its driver was iavf, now it is vfio-pci"), "{text}");
    bind(&host, "0000:17:01.1", None);
    let (_, text) = refusal(node.allocate(&["0000:17:01.1"]).await, "0000:17:01.1");
    assert!(text.contains("now it is no driver"), "{text}");
    unplug(&host, "0000:17:01.2");
    let (code, _) = refusal(node.allocate(&["0000:17:01.2"]).await, "0000:17:01.2");
    assert_eq!(code, Code::FailedPrecondition);
    assert!(node.files().is_empty());
    node.stop().await;
}

// ALC-02
#[tokio::test]
async fn a_group_number_that_changed_since_the_scan_is_the_new_one_in_the_answer() {
    let host = host("two-socket");
    let node = Node::with_pool(&host, VFIO).await;
    let before = node.allocate(&["0000:17:01.4"]).await.unwrap();
    assert_eq!(before.nodes, ["/dev/vfio/vfio", "/dev/vfio/9"]);
    regroup(&host, "0000:17:01.4", 125);
    make_node(&host, "/dev/vfio/125");
    let after = node.allocate(&["0000:17:01.4"]).await.unwrap();
    assert_eq!(after.nodes, ["/dev/vfio/vfio", "/dev/vfio/125"]);
    assert_eq!(
        after.info("0000:17:01.4")["vfio"],
        json!({"dev-mount": "/dev/vfio/125", "mount": "/dev/vfio/vfio",
               "vfio-dev-mount": "/dev/vfio/125", "vfio-mount": "/dev/vfio/vfio"})
    );
    node.stop().await;
}

// ALC-02
#[tokio::test]
async fn a_handle_that_is_gone_since_the_scan_refuses_the_device() {
    let host = host("two-socket");
    let members = r#""selectors":{"devices":["1889","10fb","101e"],"drivers":["vfio-pci","igb_uio","mlx5_core"],"isRdma":false}"#;
    let rdma = r#""selectors":{"vendors":["15b3"],"isRdma":true}"#;
    for (members, id, part, words) in [
        (members, "0000:17:01.4", "iommu_group", "VFIO"),
        (members, "0000:67:00.1", "uio", "UIO"),
        (rdma, "0000:b1:00.2", "infiniband", "RDMA"),
    ] {
        make_node(&host, "/dev/infiniband/rdma_cm");
        let node = Node::with_pool(&host, members).await;
        let aside = host.path().join("aside");
        fs::rename(function(&host, id).join(part), &aside).unwrap();
        let (code, text) = refusal(node.allocate(&[id]).await, id);
        assert_eq!(code, Code::FailedPrecondition);
        assert!(text.contains(words), "{text}");
        fs::rename(&aside, function(&host, id).join(part)).unwrap();
        node.allocate(&[id]).await.unwrap();
        node.stop().await;
    }
}

// ALC-04, SEC-02
#[tokio::test]
async fn without_an_iommu_the_hosts_node_has_another_name_and_a_pool_may_refuse() {
    let host = host("noiommu-1-vfio");
    let node = Node::with_pool(&host, r#""selectors":{"drivers":["vfio-pci"]}"#).await;
    let answer = node.allocate(&["0000:21:10.2", "0000:21:10.0"]).await.unwrap();
    assert_eq!(
        answer.nodes,
        ["/dev/vfio/vfio", "/dev/vfio/noiommu-0 -> /dev/vfio/0", "/dev/vfio/noiommu-1 -> /dev/vfio/1"]
    );
    assert_eq!(answer.info("0000:21:10.2")["vfio"]["dev-mount"], "/dev/vfio/1");
    node.stop().await;
    let refused = crate::machine::only(&host, r#""selectors":{"drivers":["vfio-pci"]},"allowNoIommu":false"#);
    assert!(refused.is_empty(), "{refused:?}");
    let guarded =
        crate::machine::only(&crate::node::host("two-socket"), &format!(r#"{VFIO},"allowNoIommu":false"#));
    assert_eq!(guarded.len(), 4);
}

// ALC-06
#[tokio::test]
async fn a_variant_driver_of_vfio_hands_over_the_group() {
    let host = host("two-socket-server");
    let node = Node::with_pool(&host, r#""selectors":{"drivers":["mlx5_vfio_pci"]}"#).await;
    let answer = node.allocate(&["0000:b1:01.3"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/vfio/vfio", "/dev/vfio/55"]);
    // Before Linux 6.2 there is no vfio-dev; then the name of the driver tells.
    fs::remove_dir_all(function(&host, "0000:b1:01.3").join("vfio-dev")).unwrap();
    assert_eq!(node.allocate(&["0000:b1:01.3"]).await.unwrap(), answer);
    node.stop().await;
}

// ALC-06
#[tokio::test]
async fn a_driver_of_any_name_with_a_vfio_device_hands_over_the_group() {
    let host = host("two-socket-server");
    bind(&host, "0000:b1:01.3", Some("somebodys_migration_driver"));
    let node = Node::with_pool(&host, r#""selectors":{"drivers":["somebodys_migration_driver"]}"#).await;
    let answer = node.allocate(&["0000:b1:01.3"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/vfio/vfio", "/dev/vfio/55"]);
    node.stop().await;
}

// ALC-06
#[tokio::test]
async fn every_uio_driver_hands_over_its_node() {
    let node = Node::with_pool(
        &host("two-socket"),
        r#""selectors":{"devices":["10fb"],"drivers":["uio_pci_generic","igb_uio"]}"#,
    )
    .await;
    let answer = node.allocate(&["0000:67:00.0", "0000:67:00.1"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/uio0", "/dev/uio1"]);
    assert_eq!(answer.info("0000:67:00.0")["uio"], json!({"mount": "/dev/uio0"}));
    node.stop().await;
}

// ALC-08
#[tokio::test]
async fn of_rdma_uverbs_is_required_and_the_others_are_handed_over_where_they_are() {
    let host = host("two-socket-server");
    let node = Node::with_pool(&host, r#""selectors":{"pfNames":["ens3f0"],"isRdma":true}"#).await;
    fs::remove_dir_all(function(&host, "0000:b1:00.3").join("infiniband_mad")).unwrap();
    let answer = node.allocate(&["0000:b1:00.2", "0000:b1:00.3"]).await.unwrap();
    assert_eq!(
        answer.nodes,
        ["umad2", "uverbs2", "rdma_cm", "uverbs3"].map(|name| format!("/dev/infiniband/{name}"))
    );
    assert_eq!(
        answer.info("0000:b1:00.3")["rdma"],
        json!({"rdma_cm": "/dev/infiniband/rdma_cm", "rdma_dev": "mlx5_3", "uverbs": "/dev/infiniband/uverbs3"})
    );
    remove_node(&host, "/dev/infiniband/uverbs3");
    node.look();
    node.lists(&[("0000:b1:00.2", true), ("0000:b1:00.3", false)]).await;
    fs::remove_dir_all(function(&host, "0000:b1:00.2").join("infiniband_verbs")).unwrap();
    node.look();
    node.lists(&[("0000:b1:00.2", false), ("0000:b1:00.3", false)]).await;
    let (code, _) = refusal(node.allocate(&["0000:b1:00.2"]).await, "0000:b1:00.2");
    assert_eq!(code, Code::FailedPrecondition);
    node.stop().await;
}

// ALC-08
#[tokio::test]
async fn without_the_hosts_rdma_cm_no_rdma_device_is_healthy() {
    let host = host("two-socket-server");
    let node = Node::with_pool(&host, r#""selectors":{"pfNames":["ens3f0#0"],"isRdma":true}"#).await;
    remove_node(&host, "/dev/infiniband/rdma_cm");
    node.look();
    node.lists(&[("0000:b1:00.2", false)]).await;
    let (_, text) = refusal(node.allocate(&["0000:b1:00.2"]).await, "0000:b1:00.2");
    assert!(text.contains("/dev/infiniband/rdma_cm does not exist"), "{text}");
    node.stop().await;
}

// ALC-08
#[tokio::test]
async fn a_pool_without_is_rdma_hands_over_no_rdma_node_and_does_not_miss_one() {
    let host = host("two-socket-server");
    for node in ["uverbs2", "uverbs3", "rdma_cm"] {
        remove_node(&host, &format!("/dev/infiniband/{node}"));
    }
    let text = r#"{"resourceList":[{"resourceName":"r","selectors":{"pfNames":["ens3f0"]}},
        {"resourceName":"other","selectors":{"vendors":["15b3"],"isRdma":true}}]}"#;
    let node = Node::start(&host, config(text)).await;
    node.lists(&[("0000:b1:00.2", true), ("0000:b1:00.3", true)]).await;
    let answer = node.allocate(&["0000:b1:00.2"]).await.unwrap();
    assert!(answer.nodes.is_empty(), "{:?}", answer.nodes);
    node.stop().await;
}

#[tokio::test]
async fn vhost_net_and_tun_are_handed_over_only_where_they_exist() {
    let host = host("two-socket-server");
    let members = r#""selectors":{"pfNames":["ens1f0np0#0"],"needVhostNet":true}"#;
    let node = Node::with_pool(&host, members).await;
    let both = node.allocate(&["0000:17:01.0"]).await.unwrap();
    assert_eq!(both.nodes, ["/dev/vhost-net", "/dev/net/tun"]);
    assert_eq!(
        both.info("0000:17:01.0")["vhost"],
        json!({"net-mount": "/dev/vhost-net", "tun-mount": "/dev/net/tun"})
    );
    remove_node(&host, "/dev/vhost-net");
    let one = node.allocate(&["0000:17:01.0"]).await.unwrap();
    assert_eq!(one.nodes, ["/dev/net/tun"]);
    remove_node(&host, "/dev/net/tun");
    let none = node.allocate(&["0000:17:01.0"]).await.unwrap();
    assert!(none.nodes.is_empty() && none.info("0000:17:01.0").get("vhost").is_none());
    node.stop().await;
}

#[tokio::test]
async fn where_dev_is_not_the_hosts_sysfs_tells_which_nodes_exist() {
    let mut recording = pcidp::host::recording::Recording::new();
    let whole = pcidp::host::recording::Recording::parse(&recorded("two-socket-server")).unwrap();
    for (path, entry) in whole.entries().filter(|(path, _)| !path.starts_with("/dev/")) {
        recording.insert(path, entry.clone()).unwrap();
    }
    let host = recording.lay_out().unwrap();
    let members = r#""selectors":{"pfNames":["ens1f0np0#0,2"],"needVhostNet":true}"#;
    let node = Node::with_pool(&host, members).await;
    let answer = node.allocate(&["0000:17:01.0", "0000:17:01.2"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/vhost-net", "/dev/net/tun", "/dev/vfio/vfio", "/dev/vfio/42"]);
    fs::remove_file(host.path().join("sys/class/misc/vhost-net")).unwrap();
    let without = node.allocate(&["0000:17:01.0"]).await.unwrap();
    assert_eq!(without.nodes, ["/dev/net/tun"]);
    node.stop().await;
}

// ALC-11
#[tokio::test]
async fn a_hyphen_stays_in_the_variable_and_a_posix_name_stands_beside_it() {
    let text = r#"{"resourceList":[{"resourcePrefix":"my-vendor.io","resourceName":"net-a",
        "selectors":{"pfNames":["ens1f0np0#0-1"]}}]}"#;
    let node = Node::start(&host("two-socket"), config(text)).await;
    let resource = "my-vendor.io/net-a";
    node.eventually("the pool", |state| state.allocatable(resource) == 2).await;
    let answer = node.allocate_each(resource, &[&["0000:17:01.0"]]).await.unwrap().remove(0);
    let names: Vec<&str> = answer.variables.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "PCIDEVICE_MY-VENDOR_IO_NET-A",
            "PCIDEVICE_MY-VENDOR_IO_NET-A_INFO",
            "PCIDEVICE_MY_VENDOR_IO_NET_A",
            "PCIDEVICE_MY_VENDOR_IO_NET_A_INFO"
        ]
    );
    assert_eq!(answer.variables[names[0]], answer.variables[names[2]]);
    assert_eq!(answer.variables[names[1]], answer.variables[names[3]]);
    node.stop().await;
}

#[tokio::test]
async fn a_name_without_a_hyphen_has_two_variables() {
    let node = Node::with_pool(&host("two-socket"), IAVF).await;
    let answer = node.allocate(&["0000:17:01.0"]).await.unwrap();
    let names: Vec<&str> = answer.variables.keys().map(String::as_str).collect();
    assert_eq!(names, ["PCIDEVICE_X_IO_R", "PCIDEVICE_X_IO_R_INFO"]);
    node.stop().await;
}

#[tokio::test]
async fn additional_information_of_the_device_wins_key_by_key() {
    let members = format!(
        r#"{IAVF},"additionalInfo":{{"*":{{"token":"every","zone":"z"}},"17:01.0":{{"token":"own","rack":"7"}},"17:01.3":{{"a":"b"}}}}"#
    );
    let node = Node::with_pool(&host("two-socket"), &members).await;
    let answer = node.allocate(&["0000:17:01.0", "0000:17:01.1"]).await.unwrap();
    let own = json!({"rack": "7", "token": "own", "zone": "z"});
    assert_eq!(answer.info("0000:17:01.0")["extra"], own);
    assert_eq!(answer.info("0000:17:01.0")["extraInfo"], own);
    assert_eq!(answer.info("0000:17:01.1")["extra"], json!({"token": "every", "zone": "z"}));
    node.stop().await;
}

// DIF-01, DIF-02, SEC-03
#[tokio::test]
async fn a_device_information_file_says_exactly_what_is_known_and_all_may_read_it() {
    let host = host("two-socket-server");
    let node = Node::with_pool(&host, r#""selectors":{"pfNames":["ens3f0"],"isRdma":true}"#).await;
    node.allocate(&["0000:b1:00.2"]).await.unwrap();
    let name = "x.io-r-0000:b1:00.2-device.json";
    let expected = |rdma: &str| {
        json!({"type": "pci", "version": "1.1.0", "pci": {
            "pci-address": "0000:b1:00.2", "pf-pci-address": "0000:b1:00.0", "rdma-device": rdma,
            "representor-device": "ens3f0_0"}})
    };
    assert_eq!(node.files().into_iter().collect::<Vec<_>>(), [(name.to_owned(), expected("mlx5_2"))]);
    let mode = fs::metadata(node.device_info().join(name)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o444);
    // The RDMA device was renamed: the next Allocate replaces the stale file.
    let verbs = function(&host, "0000:b1:00.2").join("infiniband");
    fs::rename(verbs.join("mlx5_2"), verbs.join("rocep177s0v0")).unwrap();
    node.allocate(&["0000:b1:00.2"]).await.unwrap();
    assert_eq!(node.files()[name], expected("rocep177s0v0"));
    node.stop().await;
}

// DIF-04
#[tokio::test]
async fn slashes_of_the_resource_become_hyphens_and_a_pf_has_no_pf() {
    let node = Node::with_pool(&host("two-socket"), r#""selectors":{"pciAddresses":["65:00.0"]}"#).await;
    node.allocate(&["0000:65:00.0"]).await.unwrap();
    let files = node.files();
    assert_eq!(
        files["x.io-r-0000:65:00.0-device.json"],
        json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:65:00.0"}})
    );
    assert_eq!(files.len(), 1, "no temporary file stays: {files:?}");
    node.stop().await;
}

// DIF-02
#[tokio::test]
async fn device_information_survives_a_restart_and_goes_with_its_device() {
    let host = host("two-socket");
    let mut node = Node::with_pool(&host, IAVF).await;
    node.allocate(&["0000:17:01.0", "0000:17:01.1"]).await.unwrap();
    let before = node.files();
    assert_eq!(before.len(), 2);
    let seen = node.kubelet.state().resource(POOL).lists.len();
    node.restart_plugin().await;
    node.eventually("a list of the new daemon", |state| state.resource(POOL).lists.len() > seen).await;
    assert_eq!(node.files(), before);
    unplug(&host, "0000:17:01.0");
    node.look();
    node.lists(&[("0000:17:01.1", true), ("0000:17:01.2", true), ("0000:17:01.3", true)]).await;
    let names: Vec<String> = node.files().into_keys().collect();
    assert_eq!(names, ["x.io-r-0000:17:01.1-device.json"]);
    node.stop().await;
}

// DIF-02
#[tokio::test]
async fn a_file_of_a_device_that_went_while_no_daemon_ran_is_removed_at_start() {
    let host = host("two-socket");
    let mut node = Node::with_pool(&host, r#""selectors":{"pfNames":["ens1f0np0#0"]}"#).await;
    node.allocate(&["0000:17:01.0"]).await.unwrap();
    let directory = node.device_info();
    fs::write(directory.join("x.io-r-0000:17:01.9-device.json"), "{}").unwrap();
    write(&directory.join("x.io-r-0000:99:01.0-device.json"), "{}");
    write(&directory.join("other.io-r-0000:99:01.0-device.json"), "{}");
    let seen = node.kubelet.state().resource(POOL).lists.len();
    node.restart_plugin().await;
    node.eventually("a list of the new daemon", |state| state.resource(POOL).lists.len() > seen).await;
    let names: Vec<String> = node.files().into_keys().collect();
    assert_eq!(
        names,
        [
            "other.io-r-0000:99:01.0-device.json",
            "x.io-r-0000:17:01.0-device.json",
            // No address, so nobody's to remove.
            "x.io-r-0000:17:01.9-device.json"
        ]
    );
    node.stop().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_written_fails_the_call_with_its_path() {
    let node = Node::with_pool(&host("two-socket"), IAVF).await;
    write(&node.device_info(), "in the way");
    let (code, text) = refusal(node.allocate(&["0000:17:01.0"]).await, "0000:17:01.0");
    assert_eq!(code, Code::Internal);
    assert!(text.contains("x.io-r-0000:17:01.0-device.json"), "{text}");
    node.stop().await;
}

#[tokio::test]
async fn devices_of_one_group_share_its_node_once() {
    let host = lay_out(&recorded("two-socket"));
    regroup(&host, "0000:17:01.5", 9);
    let node = Node::with_pool(&host, VFIO).await;
    let answer = node.allocate(&["0000:17:01.4", "0000:17:01.5"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/vfio/vfio", "/dev/vfio/9"]);
    link(&function(&host, "0000:17:01.5").join("iommu_group"), "../../../../kernel/iommu_groups/odd");
    let (code, _) = refusal(node.allocate(&["0000:17:01.5"]).await, "0000:17:01.5");
    assert_eq!(code, Code::FailedPrecondition);
    node.stop().await;
}

// HLT-01
#[test]
fn a_device_that_was_told_to_be_unhealthy_is_refused_with_the_reason() {
    use pcidp::daemon::{DeviceInfoDirectory, Outputs, PoolService};
    use pcidp::kubelet::Pool as _;
    use pcidp::model::Health;

    let host = host("two-socket");
    let config = crate::machine::config(
        r#"{"resourceList":[{"resourceName":"r","selectors":{"pfNames":["ens1f0np0#0"]}}]}"#,
    );
    let mut pool = crate::machine::pools(&host, &config).pools.remove(0);
    pool.members[0].health = Health::Unhealthy("ens1f0np0 has no carrier".to_owned());
    let id = pool.members[0].device.id.to_string();
    let place = tempfile::tempdir().unwrap();
    let outputs = Outputs {
        device_info: DeviceInfoDirectory::new(place.path().join("devinfo")),
        cdi: None,
        kubelet: place.path().to_owned(),
        views: None,
    };
    let refusal = PoolService::new(host, outputs, pool).allocate(&[vec![id]]).unwrap_err();
    assert!(refusal.to_string().contains("no carrier"), "{refusal}");
    assert!(!place.path().join("devinfo").exists(), "nothing is written for it");
}
