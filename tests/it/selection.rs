//! What selectors select. The ids beside the tests are those of the catalogue of reports from users.

use pcidp::host::recording::Recording;
use pcidp::pool::explain_pool;

use crate::machine::{
    config, function, host_with_answers, inventory, lay_out, offered, only, pools, recorded, selected, write,
};
use crate::node::{Node, check, host};

const CX6_PORT0: [&str; 2] = ["0000:b1:00.2", "0000:b1:00.3"];
const CX6_PORT1: [&str; 2] = ["0000:b1:01.2", "0000:b1:01.3"];

// SEL-01
#[test]
fn a_representor_that_came_back_from_a_pod_is_not_taken_for_the_pf() {
    let host = host("two-socket-server");
    assert_eq!(selected(&host, r#""pfNames":["ens8f1"]"#), CX6_PORT1);
    for representor in ["5860aa", "ens8f1_0"] {
        assert!(selected(&host, &format!(r#""pfNames":["{representor}"]"#)).is_empty(), "{representor}");
    }
}

// SEL-02
#[test]
fn the_pf_beside_representors_of_subfunctions_is_found_in_sysfs_alone() {
    let mut recording = Recording::parse(&recorded("two-socket-server")).unwrap();
    recording.set_answers(None);
    let host = recording.lay_out().unwrap();
    assert_eq!(selected(&host, r#""pfNames":["ens3f0"]"#), CX6_PORT0);
    for representor in ["en7f0pf0sf0", "ens3f0_0", "ens3f0_1"] {
        assert!(selected(&host, &format!(r#""pfNames":["{representor}"]"#)).is_empty(), "{representor}");
    }
}

// SEL-03
#[test]
fn a_representor_of_another_controller_is_not_the_pf() {
    let host = host("two-socket-server");
    let net = function(&host, "0000:b1:00.0").join("net");
    for (name, port) in [("a0", "c1pf0vf5"), ("a1", "c1pf0"), ("a2", "c2pf0sf1")] {
        write(&net.join(name).join("phys_port_name"), &format!("{port}\n"));
        write(&net.join(name).join("phys_switch_id"), "94ab0b0003f9eb98\n");
        assert!(selected(&host, &format!(r#""pfNames":["{name}"]"#)).is_empty(), "{name}");
    }
    assert_eq!(selected(&host, r#""pfNames":["ens3f0"]"#), CX6_PORT0);
}

// SEL-06
#[test]
fn a_pf_name_is_compared_as_a_whole_and_without_regard_to_case() {
    let host = host("two-socket");
    for prefix in ["ens1f0", "ens1", "ens1f0np", "ens1f0np00", "e"] {
        assert!(selected(&host, &format!(r#""pfNames":["{prefix}"]"#)).is_empty(), "{prefix}");
    }
    assert_eq!(selected(&host, r#""pfNames":["ENS1F1NP1"]"#).len(), 4);
}

// SEL-06
#[test]
fn a_vf_whose_pf_has_no_name_matches_no_name_but_still_its_address() {
    let host = host("two-socket");
    std::fs::remove_dir_all(function(&host, "0000:17:00.1").join("net")).unwrap();
    for pattern in ["ens1f1np1", "re:.*", "re:^$", "re:^ens1f1np1$"] {
        let found = selected(&host, &format!(r#""pfNames":["{pattern}"]"#));
        assert!(!found.iter().any(|id| id.starts_with("0000:17:11.")), "{pattern}: {found:?}");
    }
    assert_eq!(selected(&host, r#""rootDevices":["0000:17:00.1"]"#).len(), 4);
}

// SEL-07
#[test]
fn ranges_of_vfs_include_both_ends() {
    let host = host("two-socket");
    for (entry, indexes) in [
        ("ens1f0np0#0,2-4,7", vec![0, 2, 3, 4, 7]),
        ("ens1f0np0# 0 , 2 - 4 ", vec![0, 2, 3, 4]),
        ("ens1f0np0#0-0", vec![0]),
        ("ens1f0np0#6-200", vec![6, 7]),
        ("ens1f0np0#8", vec![]),
    ] {
        let expected: Vec<String> = indexes.iter().map(|index| format!("0000:17:01.{index}")).collect();
        assert_eq!(selected(&host, &format!(r#""pfNames":["{entry}"]"#)), expected, "{entry}");
        let entry = entry.replace("ens1f0np0", "17:00.0");
        assert_eq!(selected(&host, &format!(r#""rootDevices":["{entry}"]"#)), expected, "{entry}");
    }
}

// SEL-07
#[test]
fn a_bad_range_is_an_error_with_its_place_and_selects_nothing() {
    let host = host("two-socket");
    for entry in ["ens1f0np0#7-3", "ens1f0np0#", "ens1f0np0#0-", "ens1f0np0#1#2", "ens1f0np0#-1"] {
        let text =
            format!(r#"{{"resourceList":[{{"resourceName":"r","selectors":{{"pfNames":["{entry}"]}}}}]}}"#);
        let checked = check(&text, "x.io");
        let places: Vec<&str> = checked.errors().map(|error| error.json_path.as_str()).collect();
        assert_eq!(places, ["resourceList[0].selectors.pfNames[0]"], "{entry}");
        assert!(pools(&host, &checked.config).pools.iter().all(|pool| pool.members.is_empty()), "{entry}");
        let with_another = text.replace(r#""]}"#, r#"","ens1f1np1#1"]}"#);
        let found = pools(&host, &check(&with_another, "x.io").config);
        let ids: Vec<&str> = found.pools[0].members.iter().map(|member| member.device.id.as_str()).collect();
        assert_eq!(ids, ["0000:17:11.1"], "{entry}");
    }
}

// SEL-08
#[test]
fn several_entries_for_one_pf_are_united() {
    let host = host("two-socket");
    let expected = ["0000:17:01.0", "0000:17:01.1", "0000:17:01.4", "0000:17:01.5"];
    assert_eq!(selected(&host, r#""pfNames":["ens1f0np0#0-1","ens1f0np0#4-5"]"#), expected);
    assert_eq!(selected(&host, r#""rootDevices":["17:00.0#0-1","0000:17:00.0#4-5"]"#), expected);
    assert_eq!(selected(&host, r#""pfNames":["ens1f0np0#0","ENS1F0NP0"]"#).len(), 8);
}

// SEL-09
#[test]
fn vfs_of_many_pfs_are_selected_by_a_pattern_or_by_index_alone() {
    let host = host("two-socket");
    let every_second = ["0000:17:01.2", "0000:17:11.2"];
    assert_eq!(selected(&host, r#""pfNames":["re:^ens1f\\dnp\\d$#2"]"#), every_second);
    assert_eq!(selected(&host, r#""vendors":["8086"],"vfIndexes":["2"]"#), every_second);
    assert_eq!(selected(&host, r#""vfIndexes":["0-1","3"],"devices":["101e"]"#).len(), 3);
    assert!(selected(&host, r#""pfNames":["re:^ens1f$"]"#).is_empty());
}

// SEL-10
#[test]
fn an_exclusion_is_applied_last() {
    let host = host("two-socket");
    let seven = selected(&host, r#""pfNames":["ens1f0np0"],"exclude":{"vfIndexes":["0"]}"#);
    assert_eq!((seven.len(), seven[0].as_str()), (7, "0000:17:01.1"));
    // All tests of an exclusion have to match.
    let on_kernel = r#""pfNames":["ens1f0np0"],"exclude":{"drivers":["vfio-pci"],"vfIndexes":["4-5"]}"#;
    assert_eq!(selected(&host, on_kernel).len(), 6);
    let of_one_pool = r#"{"resourceList":[
        {"resourceName":"a","selectors":{"pfNames":["ens1f1np1"],"exclude":{"vfIndexes":["0"]}}},
        {"resourceName":"b","selectors":{"pfNames":["ens1f1np1"]}}]}"#;
    assert_eq!(offered(&host, of_one_pool)["b"], ["0000:17:11.0"]);
}

// SEL-11
#[test]
fn an_address_matches_in_every_spelling() {
    let host = host("two-socket");
    for spelling in ["17:01.0", "0000:17:01.0", " 0000:17:01.0 ", "00000000:17:01.0"] {
        let found = selected(&host, &format!(r#""pciAddresses":["{spelling}"]"#));
        assert_eq!(found, ["0000:17:01.0"], "{spelling}");
    }
    assert_eq!(selected(&host, r#""pciAddresses":["B1:00.3"]"#), ["0000:b1:00.3"]);
    assert_eq!(selected(&host, r#""pciAddresses":["10000:01:00.0"]"#), ["10000:01:00.0"]);
    let bad =
        check(r#"{"resourceList":[{"resourceName":"r","selectors":{"pciAddresses":["17.01:0"]}}]}"#, "x.io");
    assert!(bad.errors().any(|error| error.message.contains("17.01:0")));
}

// SEL-12
#[test]
fn ids_match_in_every_spelling() {
    let host = host("two-socket");
    for vendor in ["15b3", "0x15B3", "15B3", " 15b3"] {
        assert_eq!(selected(&host, &format!(r#""vendors":["{vendor}"]"#)).len(), 5, "{vendor}");
    }
    assert_eq!(selected(&host, r#""devices":["0X101E"]"#).len(), 4);
}

// SEL-12, OBS-03
#[test]
fn an_empty_pool_names_the_selector_that_emptied_it_and_both_values() {
    let host = host("two-socket");
    let config = config(
        r#"{"resourceList":[{"resourceName":"r","selectors":{"devices":["101e"],"pciAddresses":["0000:b1:00.0"]}}]}"#,
    );
    let inventory = inventory(&host, &config);
    let pools = pools(&host, &config);
    let explained = explain_pool(&config, &pools, &inventory, 0).unwrap();
    let sentence = &explained.sentence;
    for word in ["x.io/r is empty", "`pciAddresses` left no device", "0000:b1:00.0", "0000:b1:00.2"] {
        assert!(sentence.contains(word), "`{word}` is not in: {sentence}");
    }
}

// SEL-13
#[test]
fn a_pf_matches_its_own_name_and_address_where_pfs_are_asked_for() {
    let host = host("two-socket");
    for selector in [r#""pfNames":["ens3f0"]"#, r#""rootDevices":["0000:65:00.0"]"#] {
        assert!(selected(&host, selector).is_empty(), "{selector}: as in the Go plugin");
        assert_eq!(selected(&host, &format!(r#"{selector},"functionTypes":["pf"]"#)), ["0000:65:00.0"]);
    }
    // A PF has no VF index.
    assert!(selected(&host, r#""pfNames":["ens3f0#0"],"functionTypes":["pf","vf"]"#).is_empty());
    // And one with VFs is never offered.
    assert!(selected(&host, r#""pfNames":["ens1f0np0"],"functionTypes":["pf"]"#).is_empty());
}

// SEL-13
#[test]
fn a_vf_in_a_guest_is_no_pf_whatever_is_asked_for() {
    let host = host("guest-no-physfn");
    for selector in [r#""pfNames":["ens5"]"#, r#""rootDevices":["00:05.0"]"#] {
        assert!(selected(&host, selector).is_empty(), "{selector}");
        assert!(selected(&host, &format!(r#"{selector},"functionTypes":["pf","vf"]"#)).is_empty());
    }
    assert_eq!(selected(&host, r#""functionTypes":["vf"]"#), ["0000:00:05.0"]);
}

// SEL-18
#[test]
fn firmware_indexes_select_accelerators_too() {
    let host = host("two-socket");
    let members = r#""deviceType":"accelerator","selectors":{"acpiIndexes":["77"]}"#;
    assert_eq!(only(&host, members), ["0000:da:00.0"]);
    assert_eq!(selected(&host, r#""acpiIndexes":["1001","1002"]"#), ["0000:65:00.0", "0000:65:00.1"]);
}

// SEL-19
#[test]
fn a_device_belongs_to_the_first_pool_and_the_later_ones_say_what_they_lost() {
    let host = host("two-socket");
    let by_vendor = r#"{"resourceName":"a","selectors":{"vendors":["8086"],"drivers":["iavf"]}}"#;
    let by_pf = r#"{"resourceName":"b","selectors":{"pfNames":["ens1f0np0#0-1"]}}"#;
    let list = |first: &str, second: &str| config(&format!(r#"{{"resourceList":[{first},{second}]}}"#));
    let found = pools(&host, &list(by_vendor, by_pf));
    let lost: Vec<_> = found.pools[1].lost.iter().map(|(id, owner)| (id.as_str(), *owner)).collect();
    assert_eq!((found.pools[0].members.len(), found.pools[1].members.len()), (4, 0));
    assert_eq!(lost, [("0000:17:01.0", 0), ("0000:17:01.1", 0)]);
    let reversed = pools(&host, &list(by_pf, by_vendor));
    assert_eq!((reversed.pools[0].members.len(), reversed.pools[1].members.len()), (2, 2));
}

// SEL-20
#[tokio::test]
async fn each_device_of_a_mixed_pool_has_the_flags_of_its_own_selector() {
    let host = host("two-socket-server");
    let members =
        r#""selectors":[{"vendors":["15b3"],"isRdma":true},{"vendors":["8086"],"drivers":["vfio-pci"]}]"#;
    let node = Node::with_pool(&host, members).await;
    let both = node.allocate(&["0000:b1:00.2", "0000:17:01.2"]).await.unwrap();
    assert_eq!(
        both.nodes,
        [
            "/dev/vfio/vfio",
            "/dev/vfio/42",
            "/dev/infiniband/umad2",
            "/dev/infiniband/uverbs2",
            "/dev/infiniband/rdma_cm"
        ]
    );
    assert!(both.info("0000:17:01.2").get("rdma").is_none());
    assert!(both.info("0000:b1:00.2").get("vfio").is_none());
    node.stop().await;
}

// SEL-20
#[test]
fn the_first_matching_selector_object_takes_a_device() {
    let host = host("two-socket-server");
    let config = config(
        r#"{"resourceList":[{"resourceName":"r","selectors":[{"pfNames":["ens3f0#0"]},{"pfNames":["ens3f0"],"isRdma":true}]}]}"#,
    );
    let found = pools(&host, &config);
    let taken: Vec<_> =
        found.pools[0].members.iter().map(|member| (member.device.id.as_str(), member.selector)).collect();
    assert_eq!(taken, [("0000:b1:00.2", 0), ("0000:b1:00.3", 1)]);
}

#[test]
fn an_alternative_name_of_the_pf_matches() {
    let host = host("two-socket-server");
    assert_eq!(selected(&host, r#""pfNames":["enp23s0f0np0#0"]"#), ["0000:17:01.0"]);
    let renamed = host_with_answers("two-socket", &["link 90 nobody up altname=ens1f1np1"]);
    assert_eq!(selected(&renamed, r#""pfNames":["nobody"]"#).len(), 0);
}

#[test]
fn link_types_are_those_of_the_netdev_or_else_of_the_pf() {
    let host = lay_out(&recorded("two-socket"));
    write(&function(&host, "0000:b1:00.0").join("net/ens2f0np0/type"), "32\n");
    // The VF on vfio has no netdev; the others have one of their own, which is Ethernet.
    assert_eq!(selected(&host, r#""linkTypes":["infiniband"]"#), ["0000:b1:00.5"]);
    write(&function(&host, "0000:b1:00.2").join("net/ens2f0v0/type"), "32\n");
    assert_eq!(selected(&host, r#""linkTypes":["infiniband"]"#), ["0000:b1:00.2", "0000:b1:00.5"]);
    assert!(selected(&host, r#""linkTypes":["ether"],"pfNames":["ens1f0np0"]"#).len() == 8);
}
