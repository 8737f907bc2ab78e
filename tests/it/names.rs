//! Names of netdevs: alternative ones, several on one function, and ones that change while a scan runs.

use std::fs;

use pcidp::host::HostRoot;

use crate::machine::{function, host_with_answers, lay_out, recorded, selected, write};
use crate::node::host;

/// The server as a scan sees it when a link is renamed after netlink has told its name: the tree has the new one.
fn renamed_since(link: &str, earlier: &str) -> HostRoot {
    let text = recorded("two-socket-server");
    let (_, name) = link.rsplit_once(' ').unwrap();
    let line = format!("  link {link} ");
    assert!(text.contains(&line), "{link}");
    lay_out(&text.replace(&line, &line.replace(name, earlier)))
}

#[test]
fn the_uplink_stays_guarded_when_it_is_renamed_while_a_scan_runs() {
    let host = renamed_since("2 eno1", "eth0");
    assert_eq!(selected(&host, r#""functionTypes":["pf"]"#), ["0000:17:00.1"]);
}

#[test]
fn alternative_names_stay_with_a_pf_that_is_renamed_while_a_scan_runs() {
    let host = renamed_since("4 ens1f0np0", "eth0");
    for name in ["enp23s0f0np0#0", "ens1f0np0#0"] {
        assert_eq!(selected(&host, &format!(r#""pfNames":["{name}"]"#)), ["0000:17:01.0"], "{name}");
    }
}

#[test]
fn an_alternative_name_of_a_function_that_is_no_vf_matches_where_pfs_are_asked_for() {
    let host = host("two-socket-server");
    let asked = r#""functionTypes":["pf"],"pfNames":["enp23s0f1np1"]"#;
    assert_eq!(selected(&host, asked), ["0000:17:00.1"]);
}

/// A PF with two ports on one function, as a ConnectX-3 has: the second one is InfiniBand.
fn two_ports() -> HostRoot {
    let host = host_with_answers("two-socket", &["link 90 second up carrier"]);
    let net = function(&host, "0000:b1:00.1").join("net/second");
    for (name, content) in [("ifindex", "90\n"), ("type", "32\n"), ("dev_port", "1\n")] {
        write(&net.join(name), content);
    }
    host
}

#[test]
fn every_netdev_of_a_function_counts_for_its_names_and_link_types() {
    let host = two_ports();
    for name in ["ens2f1np1", "second"] {
        let asked = format!(r#""functionTypes":["pf"],"pfNames":["{name}"]"#);
        assert_eq!(selected(&host, &asked), ["0000:b1:00.1"], "{name}");
    }
    for link_type in ["ether", "infiniband"] {
        let asked = format!(r#""pciAddresses":["b1:00.1"],"linkTypes":["{link_type}"]"#);
        assert_eq!(selected(&host, &asked), ["0000:b1:00.1"], "{link_type}");
    }
}

#[test]
fn every_netdev_of_a_pf_is_a_name_of_it_for_its_vfs() {
    let host = two_ports();
    fs::rename(
        function(&host, "0000:b1:00.1").join("net/second"),
        function(&host, "0000:b1:00.0").join("net/second"),
    )
    .unwrap();
    let by = |name: &str| selected(&host, &format!(r#""pfNames":["{name}"]"#));
    assert_eq!(by("second"), by("ens2f0np0"));
    assert_eq!(by("second").len(), 4);
}

#[test]
fn a_default_route_through_any_netdev_of_a_function_guards_it() {
    let asked = r#""pciAddresses":["b1:00.1"]"#;
    assert_eq!(selected(&two_ports(), asked).len(), 1);
    let host = host_with_answers(
        "two-socket",
        &["link 90 second up carrier", "route inet default dev=second via=192.0.2.1 proto=static"],
    );
    write(&function(&host, "0000:b1:00.1").join("net/second/ifindex"), "90\n");
    assert!(selected(&host, asked).is_empty());
}
