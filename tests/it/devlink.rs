//! What is learnt through devlink, and what holds where it tells nothing.

use std::fs;
use std::path::Path;

use pcidp::host::HostRoot;
use pcidp::pool::explain_pool;

use crate::machine::{
    config, function, host_with_answers, inventory, lay_out, only, pools, recorded, selected,
};
use crate::node::host;

const GTP: &str = r#""ddpProfiles":["GTPv1-C/U IPv4/IPv6 payload"]"#;
const X710: [&str; 3] = ["0000:17:02.0", "0000:17:02.1", "0000:17:02.2"];

/// The notes of a scan for a pool with this selector.
fn notes(host: &HostRoot, selector: &str) -> Vec<String> {
    let text = format!(r#"{{"resourceList":[{{"resourceName":"r","selectors":{{{selector}}}}}]}}"#);
    inventory(host, &config(&text)).notes().iter().map(ToString::to_string).collect()
}

/// X710 cards, whose driver tells no package through devlink, and a tool that does.
fn with_tool(name: &str) -> HostRoot {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tools").join(name);
    host("reference-cards").with_ddptool(tool)
}

// SEL-16
#[test]
fn the_ddp_package_of_a_vf_is_that_of_its_pf_as_devlink_tells_it() {
    let host = host("two-socket-server");
    let os = ["0000:17:01.0", "0000:17:01.1", "0000:17:01.2"];
    assert_eq!(selected(&host, r#""ddpProfiles":["ICE OS Default Package"]"#), os);
    assert_eq!(selected(&host, r#""ddpProfiles":["ICE COMMS Package"]"#), ["0000:17:00.1"]);
    for other in ["ICE", "ice comms package", ""] {
        assert!(selected(&host, &format!(r#""ddpProfiles":["{other}"]"#)).is_empty(), "{other}");
    }
}

// SEL-16
#[test]
fn a_package_of_the_function_itself_comes_before_that_of_its_pf() {
    let own = r#"devlink pci/0000:17:01.1 info.fw.app.name="Own""#;
    let host = host_with_answers("two-socket-server", &[own]);
    assert_eq!(selected(&host, r#""ddpProfiles":["Own"]"#), ["0000:17:01.1"]);
}

// SEL-16
#[test]
fn a_pool_that_another_package_emptied_says_which_one_it_found() {
    let host = host("two-socket-server");
    let config = config(
        r#"{"resourceList":[{"resourceName":"gtp","selectors":{"drivers":["iavf"],"ddpProfiles":["GTP"]}}]}"#,
    );
    let (inventory, pools) = (inventory(&host, &config), pools(&host, &config));
    let explanation = explain_pool(&config, &pools, &inventory, 0).unwrap();
    assert_eq!(
        explanation.sentence,
        "x.io/gtp is empty: `ddpProfiles` left no device; wanted GTP, found ICE OS Default Package."
    );
}

// SEL-16
#[test]
fn where_devlink_tells_no_package_ddptool_is_asked_by_the_address_of_the_pf() {
    let host = with_tool("ddptool");
    assert_eq!(selected(&host, GTP), X710);
    let notes = notes(&host, GTP);
    assert!(
        notes.iter().any(|note| note.starts_with("ddptool -l -a -j -s 0000:65:00.0: ddptool failed: exit")),
        "{notes:#?}"
    );
    assert!(!notes.iter().any(|note| note.contains("17:00.")), "no package is no failure: {notes:#?}");
    assert!(!notes.iter().any(|note| note.contains("b1:00.")), "only cards of Intel are asked: {notes:#?}");
}

// SEL-16
#[test]
fn without_ddptool_a_note_names_the_remedy_and_only_where_a_pool_asks() {
    let host = with_tool("none");
    assert!(selected(&host, GTP).is_empty());
    let asked = notes(&host, GTP);
    let note = asked.iter().find(|note| note.starts_with("ddptool -l -a -j -s 0000:17:00.0: ")).unwrap();
    assert!(note.contains("add it to the image, as docs/hardware.md says"), "{note}");
    assert!(notes(&host, r#""vendors":["8086"]"#).iter().all(|note| !note.contains("ddptool")));
}

/// Takes the RDMA devices of a function away, as into a pod; with the directories they hang in, or without.
fn move_rdma(host: &HostRoot, address: &str, with_directories: bool) {
    for class in ["infiniband", "infiniband_verbs", "infiniband_mad"] {
        let directory = function(host, address).join(class);
        fs::remove_dir_all(&directory).unwrap();
        if !with_directories {
            fs::create_dir(&directory).unwrap();
        }
    }
}

const RDMA: &str = r#""isRdma":true,"pfNames":["ens2f0np0"]"#;
const RDMA_VFS: [&str; 3] = ["0000:b1:00.2", "0000:b1:00.3", "0000:b1:00.4"];

// DSC-12
#[test]
fn devlink_tells_whether_a_function_whose_rdma_is_away_makes_rdma_devices() {
    for (enabled, expected) in [("true", &RDMA_VFS[..]), ("false", &RDMA_VFS[1..])] {
        for with_directories in [false, true] {
            let line = format!("devlink pci/0000:b1:00.2 enable_rdma={enabled}");
            let host = host_with_answers("two-socket", &[&line]);
            move_rdma(&host, "0000:b1:00.2", with_directories);
            assert_eq!(selected(&host, RDMA), expected, "{enabled}, {with_directories}");
        }
    }
}

// DSC-12
#[test]
fn where_devlink_is_silent_the_empty_directory_tells_and_else_the_pf_of_a_function_whose_netdev_is_away() {
    let host = host("two-socket");
    move_rdma(&host, "0000:b1:00.2", false);
    assert_eq!(selected(&host, RDMA), RDMA_VFS);

    move_rdma(&host, "0000:b1:00.3", true);
    assert_eq!(selected(&host, RDMA), ["0000:b1:00.2", "0000:b1:00.4"], "its netdev is here: it has no RDMA");
    fs::remove_dir_all(function(&host, "0000:b1:00.3").join("net/ens2f0v1")).unwrap();
    assert_eq!(selected(&host, RDMA), RDMA_VFS);

    move_rdma(&host, "0000:b1:00.0", true);
    assert_eq!(selected(&host, RDMA), ["0000:b1:00.2", "0000:b1:00.4"], "the PF makes none either");
}

// DSC-12
#[test]
fn the_rdma_of_a_subfunction_is_told_by_its_own_devlink_instance() {
    let aux = r#""deviceType":"auxNetDevice","selectors":{"auxTypes":["sf"],"isRdma":true}"#;
    let before = only(&host("subfunctions"), aux);
    let gone = |enabled: &str| {
        let line = format!("devlink auxiliary/mlx5_core.sf.4 enable_rdma={enabled}");
        let host = lay_out(&format!("{}\n  {line}\n", recorded("subfunctions").trim_end()));
        let directory = host.path().join("sys/bus/auxiliary/devices/mlx5_core.sf.4/infiniband");
        for entry in fs::read_dir(&directory).unwrap() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        only(&host, aux)
    };
    assert!(before.contains(&"mlx5_core.sf.4".to_owned()));
    assert_eq!(gone("true"), before);
    assert!(!gone("false").contains(&"mlx5_core.sf.4".to_owned()));
}

/// A server with a ConnectX in switchdev mode, whose devlink answers otherwise.
fn with_eswitch(mode: &str) -> HostRoot {
    let text = recorded("two-socket-server");
    assert!(text.contains("devlink pci/0000:b1:00.1 eswitch=switchdev"));
    lay_out(&text.replace("0000:b1:00.1 eswitch=switchdev", &format!("0000:b1:00.1 eswitch={mode}")))
}

const REPRESENTED: [&str; 2] = ["0000:b1:01.2", "0000:b1:01.3"];

#[test]
fn in_legacy_mode_nothing_is_a_representor_whatever_its_port_is_called() {
    let host = with_eswitch("legacy");
    for name in ["ens8f1", "5860aa", "ens8f1_0"] {
        assert_eq!(selected(&host, &format!(r#""pfNames":["{name}"]"#)), REPRESENTED, "{name}");
    }
}

// SEL-02, DEP-02
#[test]
fn without_the_right_to_ask_devlink_port_names_tell_and_a_note_says_so() {
    let host = with_eswitch("EPERM");
    assert_eq!(selected(&host, r#""pfNames":["ens8f1"]"#), REPRESENTED);
    assert!(selected(&host, r#""pfNames":["ens8f1_0"]"#).is_empty());
    let notes = notes(&host, r#""pfNames":["ens8f1"]"#);
    let about: Vec<_> = notes.iter().filter(|note| note.contains("devlink")).collect();
    assert_eq!(
        about,
        [
            "devlink eswitch pci/0000:b1:00.1: Operation not permitted (os error 1); uplink and representors are told \
          by their port names alone"
        ],
        "once, and not for cards without representors"
    );
}
