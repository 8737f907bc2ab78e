//! Kinds of devices beside plain functions: subfunctions, vDPA, iommufd, shared groups, shared accelerators, RDMA that has
//! moved into a pod, and a container's own view of its engines.

use std::fs;

use serde_json::json;
use tonic::Code;

use crate::machine::{function, link, make_node, only, selected, write};
use crate::node::{Node, POOL, host};

const SF: &str = r#""deviceType":"auxNetDevice","selectors":{"auxTypes":["sf"],"isRdma":true}"#;

#[test]
fn subfunctions_are_selected_by_their_number_and_pf() {
    let select = |selector: &str| {
        only(
            &host("subfunctions"),
            &format!(r#""deviceType":"auxNetDevice","selectors":{{"auxTypes":["sf"],{selector}}}"#),
        )
    };
    assert_eq!(select(r#""pfNames":["p0#4-5"]"#), ["mlx5_core.sf.2", "mlx5_core.sf.3"]);
    assert_eq!(select(r#""rootDevices":["03:00.1#7"]"#), ["mlx5_core.sf.7"]);
    assert_eq!(select(r#""functionTypes":["vf"]"#), [""; 0]);
}

#[test]
fn a_subfunction_is_no_net_device_and_a_pf_is_no_subfunction() {
    assert!(
        selected(&host("subfunctions"), r#""vendors":["15b3"]"#).iter().all(|id| id.starts_with("0000:"))
    );
}

// DIF-04
#[tokio::test]
async fn a_subfunction_is_handed_over_under_its_auxiliary_name() {
    let host = host("subfunctions");
    make_node(&host, "/dev/infiniband/rdma_cm");
    let node = Node::with_pool(&host, SF).await;
    let answer = node.allocate(&["mlx5_core.sf.4"]).await.unwrap();
    assert_eq!(answer.ids(), "mlx5_core.sf.4");
    assert!(answer.nodes.contains(&"/dev/infiniband/uverbs4".to_owned()), "{:?}", answer.nodes);
    assert_eq!(
        node.files()["x.io-r-mlx5_core.sf.4-device.json"],
        json!({"type": "pci", "version": "1.1.0", "pci": {
            "pci-address": "mlx5_core.sf.4", "pf-pci-address": "0000:03:00.0", "rdma-device": "mlx5_4"}})
    );
    node.stop().await;
}

#[test]
fn representors_never_stand_for_a_pf_and_are_told_to_cni_plugins() {
    let host = host("two-socket-server");
    let found = selected(&host, r#""pfNames":["ens8f1"]"#);
    assert_eq!(found, ["0000:b1:01.2", "0000:b1:01.3"]);
}

#[tokio::test]
async fn a_vhost_vdpa_device_has_the_node_of_its_own_number() {
    let host = host("soft-0-vdpa-rdma-virtual");
    let node = Node::with_pool(&host, r#""selectors":{"vdpaType":"vhost"}"#).await;
    let answer = node.allocate(&["0000:02:00.0"]).await.unwrap();
    assert_eq!(answer.nodes, ["/dev/vhost-vdpa-1"], "vdpa2 is vhost-vdpa-1");
    assert_eq!(answer.info("0000:02:00.0")["vdpa"]["mount"], "/dev/vhost-vdpa-1");
    assert_eq!(
        node.files()["x.io-r-0000:02:00.0-device.json"],
        json!({"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa2", "driver": "vhost",
            "path": "/dev/vhost-vdpa-1", "pci-address": "0000:02:00.0"}})
    );
    node.stop().await;
    assert!(selected(&host, r#""vdpaType":"virtio""#).is_empty());
}

// ALC-05
#[tokio::test]
async fn iommufd_hands_over_the_character_device_and_needs_a_kernel_that_has_it() {
    let host = host("two-socket");
    let members = |mode: &str| format!(r#""vfio":"{mode}","selectors":{{"pciAddresses":["0000:17:01.4"]}}"#);
    // The recording's kernel has no VFIO character devices.
    let node = Node::start(
        &host,
        crate::machine::config(&format!(
            r#"{{"resourceList":[{{"resourceName":"r",{}}}]}}"#,
            members("iommufd")
        )),
    )
    .await;
    node.lists(&[("0000:17:01.4", false)]).await;
    node.stop().await;

    let directory = function(&host, "0000:17:01.4").join("vfio-dev");
    let name = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    write(&directory.join(&name).join("dev"), "511:0\n");
    make_node(&host, "/dev/iommu");
    make_node(&host, &format!("/dev/vfio/devices/{name}"));
    let cdev = format!("/dev/vfio/devices/{name}");
    let node = Node::with_pool(&host, &members("iommufd")).await;
    assert_eq!(node.allocate(&["0000:17:01.4"]).await.unwrap().nodes, ["/dev/iommu", &cdev]);
    node.stop().await;
    let node = Node::with_pool(&host, &members("both")).await;
    let nodes = node.allocate(&["0000:17:01.4"]).await.unwrap().nodes;
    assert_eq!(nodes, ["/dev/vfio/vfio", "/dev/vfio/9", "/dev/iommu", &cdev]);
    node.stop().await;
}

#[tokio::test]
async fn a_group_with_a_member_on_a_kernel_driver_is_unhealthy_until_that_member_is_away() {
    let host = host("two-socket");
    let group = host.path().join("sys/kernel/iommu_groups/9/devices");
    fs::create_dir_all(&group).unwrap();
    link(&group.join("0000:17:01.0"), "../../../../devices/pci0000:16/0000:16:00.0/0000:17:01.0");
    let members = r#""selectors":{"pciAddresses":["0000:17:01.4"]}"#;
    let text = format!(r#"{{"resourceList":[{{"resourceName":"r",{members}}}]}}"#);
    let node = Node::start(&host, crate::machine::config(&text)).await;
    node.lists(&[("0000:17:01.4", false)]).await;
    let refused = node.allocate(&["0000:17:01.4"]).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::FailedPrecondition));
    assert!(refused.to_string().contains("0000:17:01.0 (iavf)"), "{refused}");
    crate::machine::bind(&host, "0000:17:01.0", None);
    node.look();
    node.lists(&[("0000:17:01.4", true)]).await;
    node.stop().await;
}

// SEL-17
#[test]
fn partition_keys_match_in_any_spelling_and_membership() {
    let host = host("two-socket");
    let key = function(&host, "0000:b1:00.2").join("infiniband/mlx5_2/ports/1/pkeys/0");
    write(&key, "0x8001\n");
    for spelling in ["0x8001", "8001", "0X8001", "0001"] {
        assert_eq!(selected(&host, &format!(r#""pKeys":["{spelling}"]"#)), ["0000:b1:00.2"], "{spelling}");
    }
    assert!(selected(&host, r#""pKeys":["8002"]"#).is_empty());
}

// DSC-12
#[tokio::test]
async fn an_rdma_device_that_moved_into_a_pod_keeps_its_place_and_is_not_handed_over() {
    let host = host("two-socket");
    make_node(&host, "/dev/infiniband/rdma_cm");
    let directory = function(&host, "0000:b1:00.2");
    for class in ["infiniband", "infiniband_verbs", "infiniband_mad"] {
        for entry in fs::read_dir(directory.join(class)).unwrap() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    }
    let node = Node::with_pool(&host, r#""selectors":{"isRdma":true,"pfNames":["ens2f0np0#0-1"]}"#).await;
    node.lists(&[("0000:b1:00.2", true), ("0000:b1:00.3", true)]).await;
    let refused = node.allocate(&["0000:b1:00.2"]).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::FailedPrecondition));
    node.stop().await;
}

// ALC-15
#[tokio::test]
async fn a_shared_accelerator_is_several_devices_to_the_kubelet_and_one_to_its_container() {
    let members = r#""deviceType":"accelerator","replicas":2,"selectors":{"pciAddresses":["0000:b9:00.0","0000:79:00.3"]}"#;
    let node = Node::with_pool(&host("kunpeng-920"), members).await;
    // The function on VFIO has a single owner and is left out.
    node.lists(&[("0000:b9:00.0::0", true), ("0000:b9:00.0::1", true)]).await;
    let answer = node.allocate(&["0000:b9:00.0::1"]).await.unwrap();
    assert_eq!(
        (answer.ids(), answer.nodes.as_slice()),
        ("0000:b9:00.0", &["/dev/hisi_hpre-3".to_owned()][..])
    );
    let both = node.allocate(&["0000:b9:00.0::0", "0000:b9:00.0::1"]).await.unwrap();
    assert_eq!(both.ids(), "0000:b9:00.0");
    for unknown in ["0000:b9:00.0", "0000:b9:00.0::2", "0000:b9:00.0::x"] {
        let code = node.allocate(&[unknown]).await.unwrap_err().code();
        assert_eq!(code, Some(Code::InvalidArgument), "{unknown}");
    }
    assert_eq!(node.files().into_keys().collect::<Vec<_>>(), ["x.io-r-0000:b9:00.0-device.json"]);
    node.stop().await;
}

// KAE-05
#[tokio::test]
async fn a_container_sees_its_own_engines_only_and_the_host_s_where_several_pools_may_meet() {
    let hpre = r#""deviceType":"accelerator","selectors":{"drivers":["hisi_hpre"]}"#;
    let node = Node::with_pool(&host("kunpeng-920"), hpre).await;
    let answer = node.allocate(&["0000:79:00.2"]).await.unwrap();
    let [(view, class)] = &answer.mounts[..] else { panic!("{:?}", answer.mounts) };
    assert_eq!(class.to_str(), Some("/sys/class/uacce"));
    assert!(view.starts_with(node.directory().join("pcidp/uacce")));
    let names: Vec<_> = fs::read_dir(view).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["hisi_hpre-7"]);
    let target = fs::read_link(view.join("hisi_hpre-7")).unwrap();
    assert!(
        target.starts_with("../../devices"),
        "it resolves into the container's sysfs: {}",
        target.display()
    );
    node.stop().await;

    let two = r#"{"resourceList":[
        {"resourceName":"r","deviceType":"accelerator","selectors":{"drivers":["hisi_hpre"]}},
        {"resourceName":"sec","deviceType":"accelerator","selectors":{"drivers":["hisi_sec2"]}}]}"#;
    let node = Node::start(&host("kunpeng-920"), crate::machine::config(two)).await;
    node.eventually("both", |state| ["x.io/r", "x.io/sec"].iter().all(|name| state.allocatable(name) > 0))
        .await;
    assert!(node.allocate(&["0000:79:00.2"]).await.unwrap().mounts.is_empty());
    node.stop().await;
}

#[tokio::test]
async fn what_running_containers_hold_is_made_again_at_start_and_views_of_ended_ones_go() {
    let hpre = r#""deviceType":"accelerator","selectors":{"drivers":["hisi_hpre"]}"#;
    let mut node = Node::with_pool(&host("kunpeng-920"), hpre).await;
    let held = node.allocate(&["0000:79:00.1"]).await.unwrap().mounts[0].0.clone();
    let ended = node.allocate(&["0000:79:00.2"]).await.unwrap().mounts[0].0.clone();
    fs::remove_dir_all(node.device_info()).unwrap();
    fs::write(
        node.directory().join("kubelet_internal_checkpoint"),
        json!({"Data": {"PodDeviceEntries": [{"PodUID": "u", "ContainerName": "c", "ResourceName": POOL,
            "DeviceIDs": {"0": ["0000:79:00.1"]}, "AllocResp": ""}]}, "Checksum": 1})
        .to_string(),
    )
    .unwrap();
    node.restart_plugin().await;
    node.eventually("registered again", |state| state.resource(POOL).registrations.len() > 1).await;
    assert_eq!(node.files().into_keys().collect::<Vec<_>>(), ["x.io-r-0000:79:00.1-device.json"]);
    assert!(held.exists() && !ended.exists());
    node.stop().await;
}
