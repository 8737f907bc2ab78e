use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::host::netlink::{Link, Netlink};
use crate::host::{HostRoot, NodeKind};

const EXAMPLE: &str = r#"pcidp-host 1
# A machine for tests.

/dev/vfio/
  20 : char 243:0 0600

/sys/devices/pci0000:20/0000:21:00.0/
  class = 0x020000
  driver -> ../../../bus/pci/drivers/igb
  net/
  phys_port_name ! EOPNOTSUPP
  uevent = "DRIVER=igb\nPCI_CLASS=20000\n"

/sys/devices/virtual/net/bond0/
  ifindex = 7

[netlink]
  link 2 ens1f0 up carrier altname=enp33s0f0 master=bond0
  link 9 vlan9 no-carrier lower=2 kind=vlan
  route inet default dev=bond0 dev=ens1f0 via=192.0.2.1 table=main proto=dhcp metric=100
  route inet6 default table=77 proto=42 type=unreachable
  devlink pci/0000:21:00.0 eswitch=switchdev enable_rdma=true info.fw.app.name="GTP Flow"
"#;

fn problems(text: &str) -> Vec<(usize, String)> {
    let error = Recording::parse(text).unwrap_err();
    let pair = |problem: &Problem| (problem.line, problem.message.clone());
    error.problems().iter().map(pair).collect()
}

#[test]
fn a_recording_is_printed_as_it_was_read() {
    let recording = Recording::parse(EXAMPLE).unwrap();
    assert_eq!(recording.to_string(), EXAMPLE);
    assert_eq!(recording.header(), ["A machine for tests."]);
}

#[test]
fn comments_and_empty_lines_may_stand_anywhere_and_only_the_header_is_kept() {
    let spaced = EXAMPLE.replace("  class", "# why\n  # indented\n\n  class");
    assert_eq!(Recording::parse(&spaced), Recording::parse(EXAMPLE));
    let dos = EXAMPLE.replace('\n', "\r\n");
    assert_eq!(Recording::parse(&dos), Recording::parse(EXAMPLE));
}

#[test]
fn what_is_laid_out_reads_like_the_machine() {
    let host = Recording::parse(EXAMPLE).unwrap().lay_out().unwrap();
    let function = "/sys/devices/pci0000:20/0000:21:00.0";
    assert_eq!(host.read(&format!("{function}/class")).unwrap(), "0x020000");
    assert_eq!(host.link_name(&format!("{function}/driver")).unwrap(), "igb");
    assert_eq!(host.content(&format!("{function}/uevent")).unwrap(), "DRIVER=igb\nPCI_CLASS=20000\n");
    assert!(host.list(&format!("{function}/net")).unwrap().is_empty());
    let (number, mode) = host.node_and_mode("/dev/vfio/20").unwrap();
    assert_eq!((number.kind, number.major, number.minor), (NodeKind::Char, 243, 0));
    assert_eq!(mode, 0o600);
    assert!(host.shows_nodes_at("/dev/vfio/20"));
}

#[test]
fn a_file_that_could_not_be_read_fails_with_the_recorded_error() {
    let host = Recording::parse(EXAMPLE).unwrap().lay_out().unwrap();
    let error = host.read("/sys/devices/pci0000:20/0000:21:00.0/phys_port_name").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::EOPNOTSUPP as i32));
}

#[test]
fn names_in_the_answers_of_netlink_become_indexes() {
    let netlink = RecordedNetlink::new(&Recording::parse(EXAMPLE).unwrap()).unwrap();
    let links = netlink.links().unwrap();
    let first = Link {
        index: 2,
        name: "ens1f0".to_owned(),
        alternative_names: vec!["enp33s0f0".to_owned()],
        up: true,
        carrier: Some(true),
        master: Some(7),
        ..Link::default()
    };
    assert_eq!(links[0], first);
    assert_eq!((links[1].lower, links[1].carrier), (Some(2), Some(false)));
    let routes = netlink.default_routes().unwrap();
    assert_eq!(routes.len(), 1, "only unicast routes lead anywhere");
    assert_eq!(routes[0].interfaces, [7, 2]);
    assert_eq!((routes[0].table, routes[0].protocol, routes[0].metric), (254, 16, 100));
}

#[test]
fn a_recording_without_answers_of_netlink_says_that_they_are_unknown() {
    let host = Recording::parse("pcidp-host 1\n").unwrap().lay_out().unwrap();
    assert!(host.netlink().links().is_err());
    let host = Recording::parse("pcidp-host 1\n[netlink]\n").unwrap().lay_out().unwrap();
    assert!(host.netlink().links().unwrap().is_empty());
}

#[test]
fn every_problem_is_told_with_its_line_and_what_to_write() {
    let text = "pcidp-host 1\n  stray = 1\n/a\n  skipped\n/a/\n  x = 1\n  x = 2\n  y\n  z ! EWHAT\n   w = 1\n  n : char 1\n  e = \n[netlink]\n  link 1 eth0 master=bond0 colour=red\n  route inet default dev=nowhere\n";
    let found = problems(text);
    let expected = [
        (2, "/dev/"),
        (3, "slash at both ends"),
        (7, "the first is on line 6"),
        (8, "name = text"),
        (9, "EOPNOTSUPP"),
        (10, "two spaces"),
        (11, "char MAJOR:MINOR 0600"),
        (12, "JSON string"),
        (14, "`colour` does not belong here"),
        (15, "`nowhere` is no interface"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((line, message), (at, part)) in found.iter().zip(expected) {
        assert_eq!(*line, at, "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_first_line_must_be_right() {
    assert!(problems("")[0].1.contains("pcidp-host 1"));
    assert!(problems("<html>")[0].1.contains("pcidp-host 1"));
    assert!(problems("pcidp-host 2\n")[0].1.contains("newer pcidp"));
}

#[test]
fn nothing_leads_out_of_a_recorded_host() {
    for entry in [
        "/a/../b/\n  x = 1",
        "/a//b/\n  x = 1",
        "/./\n  x = 1",
        "a/\n  x = 1",
        "/a/\n  .. = 1",
        "/a/\n  b/c = 1",
        "/a/\n  \"b\\u0000\" = 1",
        "/a/\n  x -> /etc/passwd",
        "/a/\n  x -> ../../etc/passwd",
        "/a/\n  x -> b/../../../etc/passwd",
        "/a/\n  x -> .",
        "/a/\n  x -> b\n/a/x/\n  y = 1",
        "/a/x/\n  y = 1\n/a/\n  x -> b",
    ] {
        let text = format!("pcidp-host 1\n{entry}\n");
        assert!(Recording::parse(&text).is_err(), "{text}");
    }
    let long = format!("pcidp-host 1\n/a/\n  {} = 1\n", "n".repeat(256));
    assert!(problems(&long)[0].1.contains("too long"));
}

#[test]
fn a_flood_of_problems_is_counted_and_not_printed() {
    let text = format!("pcidp-host 1\n{}", "  stray\n".repeat(1000));
    let error = Recording::parse(&text).unwrap_err();
    assert_eq!(error.problems().len(), 50);
    assert!(error.to_string().ends_with("and 950 more"));
}

#[test]
fn opening_a_host_tells_the_path_the_line_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let error = HostRoot::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("holds no directory `sys`"), "{error}");
    let file = directory.path().join("bad.host");
    std::fs::write(&file, "pcidp-host 1\n  stray\n").unwrap();
    let error = HostRoot::open(&file).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}:2: ", file.display())), "{error}");
    let error = HostRoot::open(&directory.path().join("missing")).unwrap_err();
    assert!(error.to_string().contains("missing: No such file"), "{error}");
    std::fs::write(&file, EXAMPLE).unwrap();
    assert_eq!(HostRoot::open(&file).unwrap().list("/dev/vfio").unwrap(), ["20"]);
    assert_eq!(HostRoot::open(Path::new("/")).unwrap().path(), Path::new("/"));
}

fn name() -> impl Strategy<Value = String> {
    let plain = "[a-z0-9:._-]{1,8}|[ \"#=>!:\\[\\PC]{1,6}|\\PC{1,5}|[\t\n\r\u{7f}a]{1,3}";
    plain.prop_filter("no name", |name| !name.contains(['/', '\0']) && name != "." && name != "..")
}

fn entry() -> impl Strategy<Value = Entry> {
    let errno = (1..=133).prop_map(Errno::from_raw);
    let errno = errno.prop_filter("has a name", |errno| *errno != Errno::UnknownErrno);
    let content = prop_oneof!["[ -~]{0,12}\n?", "(?s).{0,12}\n{0,2}", Just("\n".to_owned())];
    let node = (any::<bool>(), any::<u64>(), any::<u64>(), 0u32..0o1000);
    prop_oneof![
        4 => content.prop_map(Entry::File),
        1 => name().prop_map(Entry::Link),
        1 => errno.prop_map(Entry::Unreadable),
        1 => node.prop_map(|(block, major, minor, mode)| {
            let kind = if block { NodeKind::Block } else { NodeKind::Char };
            Entry::Node(Node { number: DeviceNumber { kind, major, minor }, mode })
        }),
        1 => Just(Entry::Directory),
    ]
}

fn link() -> impl Strategy<Value = RecordedLink> {
    let names = proptest::collection::vec(name(), 0..3);
    let carrier = proptest::option::of(any::<bool>());
    let up = any::<bool>();
    (1u32..99, name(), up, carrier, names, any::<bool>(), "[a-z]{0,4}").prop_map(
        |(index, name, up, carrier, alternative_names, own, kind)| RecordedLink {
            index,
            up,
            carrier,
            alternative_names,
            master: own.then(|| name.clone()),
            lower: own.then(|| index.to_string()),
            kind,
            name,
        },
    )
}

fn answers() -> impl Strategy<Value = Answers> {
    let route = (any::<bool>(), any::<u32>(), any::<u8>(), any::<u32>(), any::<Option<IpAddr>>());
    let routes = proptest::collection::vec(route, 0..3);
    let info = proptest::collection::btree_map("[a-z.]{1,5}", "\\PC{0,5}", 0..3);
    let links = proptest::collection::vec(link(), 0..4);
    (links, routes, info).prop_map(|(links, routes, info): (_, _, BTreeMap<String, String>)| {
        let interfaces: Vec<String> = links.iter().map(|link: &RecordedLink| link.name.clone()).collect();
        let routes = routes.into_iter().map(|(new, table, protocol, metric, gateway)| RecordedRoute {
            family: if new { Family::Inet6 } else { Family::Inet },
            interfaces: interfaces.clone(),
            gateway,
            table,
            protocol,
            metric,
            kind: if new { "unicast" } else { "prohibit" }.to_owned(),
        });
        Answers {
            routes: routes.collect(),
            devlinks: vec![RecordedDevlink {
                device: "pci/0000:03:00.0".to_owned(),
                eswitch: Some("legacy".to_owned()),
                enable_rdma: Some(false),
                info,
            }],
            links,
        }
    })
}

fn recording() -> impl Strategy<Value = Recording> {
    let path = proptest::collection::vec(name(), 1..5);
    let entries = proptest::collection::vec((path, entry()), 0..24);
    let answers = proptest::option::of(answers());
    (entries, answers, proptest::collection::vec("\\PC{0,9}", 0..3)).prop_map(|(entries, answers, header)| {
        let mut recording = Recording::new();
        recording.set_header(header.iter().map(String::as_str));
        recording.set_answers(answers);
        for (path, entry) in entries {
            // What contradicts an earlier entry is refused, which is not the point here.
            let _ = recording.insert(&format!("/{}", path.join("/")), entry);
        }
        recording
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn printing_and_parsing_are_inverse(recording in recording()) {
        let text = recording.to_string();
        let again = Recording::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&again, &recording);
        prop_assert_eq!(again.to_string(), text);
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "(pcidp-host 1\n)?(?s).{0,80}") {
        let _ = Recording::parse(&text);
    }

    #[test]
    fn parsing_what_was_damaged_never_panics_and_never_leads_out(at in 0..EXAMPLE.len(), text in "[ -~\n]{0,4}") {
        let mut damaged = EXAMPLE.to_owned();
        damaged.insert_str(at, &text);
        if let Ok(recording) = Recording::parse(&damaged) {
            prop_assert_eq!(Recording::parse(&recording.to_string()).unwrap(), recording);
        }
    }
}
