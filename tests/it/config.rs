//! Configs as they are in the field, over sockets. What a config means word by word is tested beside its reader.

use std::collections::BTreeMap;
use std::time::Duration;

use pcidp::config::Config;

use crate::node::{Node, check, host};

/// The pools that a kubelet sees, each with its ids, once `last` is among them.
async fn served(config: Config, last: &str) -> BTreeMap<String, Vec<String>> {
    let expected = config.pools.len();
    let node = Node::start(&host("two-socket-server"), config).await;
    let state = node
        .eventually(last, |state| {
            state.resources.len() == expected
                && state.resources.values().all(|pool| pool.healthy().count() > 0)
        })
        .await;
    assert!(state.allocatable(last) > 0, "{last}");
    let ids =
        |devices: &[pcidp::kubelet::Advertised]| devices.iter().map(|device| device.id.clone()).collect();
    let pools = state.resources.iter().map(|(name, pool)| (name.clone(), ids(pool.devices()))).collect();
    node.stop().await;
    pools
}

// CFG-01
#[tokio::test]
async fn the_keys_that_operators_write_select_what_they_mean() {
    let operator = r#"{"resourceList":[
        {"resourceName":"rdma","selectors":{"vendors":["15b3"],"pfNames":["ens3f0"],"IsRdma":true,"NeedVhostNet":false},"SelectorObj":null},
        {"resourceName":"vhost","SELECTORS":{"Vendors":["8086"],"drivers":["igb"],"DRIVERS":["iavf"],"NeedVhostNet":true},"SelectorObjs":null}]}"#;
    let checked = check(operator, "openshift.io");
    assert!(checked.errors().next().is_none());
    let warnings: Vec<&str> = checked.problems.iter().map(|problem| problem.message.as_str()).collect();
    assert!(!warnings.iter().any(|warning| warning.contains("SelectorObj")), "{warnings:?}");
    let found = served(checked.config.clone(), "openshift.io/vhost").await;
    assert_eq!(
        found,
        BTreeMap::from([
            ("openshift.io/rdma".to_owned(), vec!["0000:b1:00.2".to_owned(), "0000:b1:00.3".to_owned()]),
            ("openshift.io/vhost".to_owned(), vec!["0000:17:01.0".to_owned(), "0000:17:01.1".to_owned()]),
        ])
    );
    let node = Node::start(&host("two-socket-server"), checked.config).await;
    node.eventually("both", |state| {
        state.resources.len() == 2 && state.resources.values().all(|r| !r.lists.is_empty())
    })
    .await;
    let rdma = node.allocate_each("openshift.io/rdma", &[&["0000:b1:00.2"]]).await.unwrap().remove(0);
    assert!(rdma.nodes.contains(&"/dev/infiniband/uverbs2".to_owned()), "{:?}", rdma.nodes);
    let vhost = node.allocate_each("openshift.io/vhost", &[&["0000:17:01.0"]]).await.unwrap().remove(0);
    assert_eq!(vhost.nodes, ["/dev/vhost-net", "/dev/net/tun"]);
    node.stop().await;
}

// CFG-02
#[tokio::test(start_paused = true)]
async fn a_config_without_pools_serves_nothing_and_stays_alive() {
    for text in [r#"{"resourceList":null}"#, "{}", r#"{"resourceList":[]}"#] {
        let checked = check(text, "x.io");
        assert!(checked.errors().next().is_none(), "{text}");
        let node = Node::start(&host("kunpeng-vm"), checked.config).await;
        tokio::time::advance(Duration::from_secs(60)).await;
        node.look();
        tokio::task::yield_now().await;
        assert!(node.is_running(), "{text}");
        assert!(node.kubelet.state().resources.is_empty());
        node.stop().await;
    }
}

// CFG-05, CFG-08, CFG-09
#[tokio::test]
async fn one_bad_pool_never_takes_the_others_down() {
    for bad in [
        r#"{"resourceName":"old","rootDevices":["21:00.1"],"sriovMode":true,"deviceType":"vfio"}"#,
        r#"{"resourceName":"bad","selectors":{"vendors":"8086"}}"#,
        r#"{"resourceName":"bad","selectors":[null]}"#,
        r#"{"resourceName":"region-","selectors":{"vendors":["8086"]}}"#,
        r#"{"resourceName":"_x","selectors":{"vendors":["8086"]}}"#,
        r#"{"resourceName":"x","resourcePrefix":"Intel.com","selectors":{"vendors":["8086"]}}"#,
        r#"{"resourceName":"x","resourcePrefix":"kubernetes.io","selectors":{"vendors":["8086"]}}"#,
        r#"{"resourceName":"bad","selectors":{"isRdma":true,"vdpaType":"vhost"}}"#,
        r#"{"selectors":{"vendors":["8086"]}}"#,
        r#"{"resourceName":"bad","deviceType":"gpu"}"#,
        "null",
        "7",
    ] {
        let first = r#"{"resourceName":"first","selectors":{"drivers":["iavf"]}}"#;
        let last = r#"{"resourceName":"last","selectors":{"drivers":["vfio-pci"]}}"#;
        let checked = check(&format!(r#"{{"resourceList":[{first},{bad},{last}]}}"#), "x.io");
        let places: Vec<&str> = checked.errors().map(|error| error.json_path.as_str()).collect();
        assert!(!places.is_empty() && places.iter().all(|place| place.contains("[1]")), "{bad}: {places:?}");
        assert_eq!(checked.config.refused.len(), 1, "{bad}");
        let found = served(checked.config, "x.io/last").await;
        let names: Vec<&String> = found.keys().collect();
        assert_eq!(names, ["x.io/first", "x.io/last"], "{bad}");
        assert_eq!(found["x.io/first"], ["0000:17:01.0", "0000:17:01.1"], "{bad}");
    }
}

// CFG-08
#[tokio::test]
async fn devices_that_a_faulty_pool_would_have_taken_fall_to_later_ones() {
    let text = r#"{"resourceList":[{"resourceName":"a","selectors":{"drivers":"iavf"}},
        {"resourceName":"b","selectors":{"vendors":["8086"],"drivers":["iavf"]}}]}"#;
    let found = served(check(text, "x.io").config, "x.io/b").await;
    assert_eq!(found["x.io/b"].len(), 2);
}
