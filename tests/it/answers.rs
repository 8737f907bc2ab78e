//! What a kernel said over netlink, byte by byte: `testdata/netlink`.

use std::fs;
use std::path::Path;

use pcidp::host::netlink::{Answered, EswitchMode, Family, Link, Netlink, PROTOCOL_RA, Route, TABLE_MAIN};
use proptest::prelude::*;

/// The bytes of `testdata/netlink/<name>.hex`.
fn received(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/netlink/{name}.hex"));
    let digits: Vec<u8> = fs::read(path).unwrap().into_iter().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[cfg(target_endian = "little")]
#[test]
fn links_are_read_with_their_names_and_with_what_lies_below_them() {
    let links = Answered(&received("links")).links().unwrap();
    let named = |name: &str| links.iter().find(|link| link.name == name).unwrap();
    let (v0, v1, bridge, macvlan) = (named("v0"), named("v1"), named("br0"), named("mv0"));
    assert_eq!(v0.alternative_names, ["enp23s0f0np0-long-name"]);
    assert!(v0.up && v0.carrier == Some(true));
    assert_eq!([&v0.kind, &bridge.kind, &macvlan.kind], ["veth", "bridge", "macvlan"]);
    assert_eq!((macvlan.master, macvlan.lower), (Some(bridge.index), Some(v1.index)));
    let plain = Link { index: 1, name: "lo".to_owned(), up: true, carrier: Some(true), ..Link::default() };
    assert_eq!(links[0], plain);
}

#[cfg(target_endian = "little")]
#[test]
fn default_routes_are_read_with_every_hop_and_others_are_left_out() {
    let index = |name: &str| {
        let links = Answered(&received("links")).links().unwrap();
        links.iter().find(|link| link.name == name).unwrap().index
    };
    let multipath = Route {
        family: Family::Inet,
        table: TABLE_MAIN,
        interfaces: vec![index("br0"), index("v0")],
        gateway: None,
        protocol: 4,
        metric: 100,
    };
    let policy = Route {
        table: 100,
        interfaces: vec![index("br0")],
        gateway: Some("192.0.2.1".to_owned()),
        protocol: 3,
        metric: 0,
        ..multipath
    };
    let routes = Answered(&received("routes-inet")).default_routes().unwrap();
    assert_eq!(routes.len(), 2, "a blackhole leads nowhere: {routes:?}");
    assert!(routes.contains(&multipath) && routes.contains(&policy), "{routes:?}");
    let advertised = Route {
        family: Family::Inet6,
        gateway: Some("2001:db8::1".to_owned()),
        protocol: PROTOCOL_RA,
        metric: 1024,
        ..Route { interfaces: vec![index("br0")], ..multipath }
    };
    assert_eq!(Answered(&received("routes-inet6")).default_routes().unwrap(), [advertised]);
}

// SEL-16
#[cfg(target_endian = "little")]
#[test]
fn devlink_is_read_and_what_runs_wins_over_what_is_stored() {
    let versions = Answered(&received("devlink-info")).versions("").unwrap();
    assert_eq!(versions["fw.app.name"], "ICE COMMS Package");
    assert_eq!(versions["board.id"], "K65390-000");
    let mode = Answered(&received("devlink-eswitch")).eswitch_mode("").unwrap();
    assert_eq!(mode, Some(EswitchMode::Switchdev));
    assert_eq!(Answered(&received("devlink-enable-rdma")).enables_rdma("").unwrap(), Some(true));
}

proptest! {
    #[test]
    fn an_answer_with_other_bytes_in_it_is_read_or_refused(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        for name in ["links", "routes-inet", "routes-inet6", "devlink-info", "devlink-eswitch"] {
            let mut answer = received(name);
            let at = at.index(answer.len());
            for (place, byte) in answer[at..].iter_mut().zip(&bytes) {
                *place = *byte;
            }
            let answer = Answered(&answer);
            let _ = (answer.links(), answer.default_routes(), answer.versions(""), answer.eswitch_mode(""));
        }
    }
}
