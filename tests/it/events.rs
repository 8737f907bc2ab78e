//! What the kernel says of changes: real messages of a machine with SR-IOV cards, in `testdata/uevents`.

use std::collections::BTreeMap;
use std::path::Path;

use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::RouteMessage;
use pcidp::host::{HostRoot, Seen, Watch, rtnetlink, uevent};
use proptest::prelude::*;

/// The messages of each change, as the kernel sends them.
fn changes() -> BTreeMap<String, Vec<Vec<u8>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/uevents/hot-changes.txt");
    let mut changes: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    let mut change = String::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        if let Some(name) = line.strip_prefix("# ") {
            change = name.to_owned();
            changes.entry(change.clone()).or_default();
            continue;
        }
        let messages = changes.get_mut(&change).unwrap();
        match line.strip_prefix("  ") {
            Some(field) => {
                let message = messages.last_mut().unwrap();
                message.extend(field.bytes());
                message.push(0);
            }
            None => messages.push([line.as_bytes(), b"\0"].concat()),
        }
    }
    changes
}

// DSC-01
#[test]
fn every_change_that_has_uevents_is_heard_and_a_loss_is_known_as_one() {
    let mut heard = 0;
    for (change, messages) in changes() {
        let seen = messages.iter().filter_map(|message| uevent(message)).max();
        // Links that go up and down have none: rtnetlink tells of them.
        assert_eq!(seen.is_some(), !messages.is_empty(), "{change}");
        heard += usize::from(seen.is_some());
        let is_loss = messages.iter().any(|message| message.starts_with(b"remove@/devices/pci"));
        assert!(!is_loss || seen == Some(Seen::Gone), "{change}: {seen:?}");
    }
    assert!(heard >= 5, "{heard}");
}

#[test]
fn queues_and_the_interfaces_of_pods_wake_nobody() {
    let queue = b"add@/devices/pci0000:20/0000:21:10.0/net/eth5/queues/rx-0\0SUBSYSTEM=queues\0";
    let veth = b"add@/devices/virtual/net/veth0a1b\0SUBSYSTEM=net\0INTERFACE=veth0a1b\0";
    let block = b"change@/devices/virtual/block/loop0\0SUBSYSTEM=block\0";
    for message in [&queue[..], &veth[..], &block[..], b"libudev\0\xfe\xed\xca\xfe", b""] {
        assert_eq!(uevent(message), None, "{}", String::from_utf8_lossy(message));
    }
}

#[test]
fn an_interface_whose_name_is_no_text_is_heard() {
    // The kernel takes any bytes but white space, `/` and `:` for a name.
    let moved =
        b"move@/devices/pci0000:16/0000:17:00.0/net/\xff\xfe\0ACTION=move\0SUBSYSTEM=net\0INTERFACE=\xff\xfe\0";
    assert_eq!(uevent(moved), Some(Seen::Changed));
    let gone = b"remove@/devices/pci0000:16/0000:17:00.0/net/\xff\0ACTION=remove\0SUBSYSTEM=net\0";
    assert_eq!(uevent(gone), Some(Seen::Gone));
    // What cannot be read does not make a later field the first one.
    assert_eq!(uevent(b"\xff\0remove@/devices/x\0SUBSYSTEM=pci\0"), None);
}

fn datagram(message: RouteNetlinkMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn link(kind: Option<InfoKind>) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName("x".to_owned()));
    message.attributes.extend(kind.map(|kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])));
    datagram(RouteNetlinkMessage::NewLink(message))
}

fn route(prefix: u8) -> Vec<u8> {
    let mut message = RouteMessage::default();
    message.header.destination_prefix_length = prefix;
    datagram(RouteNetlinkMessage::NewRoute(message))
}

// HLT-01
#[test]
fn links_and_default_routes_are_heard_and_veths_and_other_routes_are_not() {
    assert_eq!(rtnetlink(&link(None)), Some(Seen::Gone), "its carrier may be");
    assert_eq!(rtnetlink(&link(Some(InfoKind::Bond))), Some(Seen::Gone));
    assert_eq!(rtnetlink(&link(Some(InfoKind::Veth))), None);
    assert_eq!(rtnetlink(&route(0)), Some(Seen::Changed));
    assert_eq!(rtnetlink(&route(24)), None);
    assert_eq!(rtnetlink(&[route(24), link(None)].concat()), Some(Seen::Gone));
}

#[tokio::test]
async fn this_machine_can_be_listened_to() {
    let watch = Watch::new(&HostRoot::live());
    assert_eq!(watch.deaf, Vec::<String>::new());
}

proptest! {
    #[test]
    fn no_message_is_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        uevent(&bytes);
        rtnetlink(&bytes);
    }
}
