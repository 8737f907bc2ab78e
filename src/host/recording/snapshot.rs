//! Takes a recording from a machine: only what the scanner reads, and nothing that tells whose machine it is.

use std::collections::BTreeSet;
use std::io;

use super::identities::hide_identities;
use super::rules::{self, Place, Take};
use super::{
    Answers, Entry, EntryError, Errno, Node, RecordedDevlink, RecordedLink, RecordedRoute, Recording,
};
use crate::host::HostRoot;
use crate::host::devlink::DDP_PROFILE;
use crate::host::netlink::{Link, Route};

/// What to put into a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Also what identifies the machine: hardware addresses, GUIDs, switch ids, gateways.
    pub identities: bool,
}

/// Begins a line of the header that tells what does not fit into a recording.
pub(super) const LEFT_OUT: &str = "left out";

/// Where a walk begins: a directory of links into `/sys/devices`, and what each of them leads to.
const LINK_DIRECTORIES: [(&str, Place); 12] = [
    ("/sys/bus/pci/devices", Place::Device),
    ("/sys/bus/auxiliary/devices", Place::Device),
    ("/sys/bus/vdpa/devices", Place::Device),
    ("/sys/class/net", Place::Net),
    ("/sys/class/uacce", Place::Uacce),
    ("/sys/class/uio", Place::Character),
    ("/sys/class/vfio", Place::Character),
    ("/sys/class/vfio-dev", Place::Character),
    ("/sys/class/infiniband", Place::Rdma),
    ("/sys/class/infiniband_verbs", Place::Character),
    ("/sys/class/infiniband_mad", Place::Character),
    ("/sys/class/misc", Place::Character),
];

/// Reads a host into a recording.
///
/// What cannot be read is part of the recording (`! ERRNO`), or a line of its header. Virtual interfaces without a device
/// below them (`veth`, a bridge of those, `lo`) are left out, unless a default route leaves through them.
pub fn record(host: &HostRoot, options: SnapshotOptions) -> Recording {
    let mut recorder = Recorder {
        host,
        options,
        recording: Recording::new(),
        entered: BTreeSet::new(),
        left_out: BTreeSet::new(),
        notes: Vec::new(),
    };
    let answers = recorder.answers();
    let routed: BTreeSet<String> = answers
        .iter()
        .flat_map(|answers| &answers.routes)
        .flat_map(|route| route.interfaces.iter().cloned())
        .collect();
    recorder.sys(&routed);
    recorder.dev();
    recorder.finish(answers)
}

struct Recorder<'a> {
    host: &'a HostRoot,
    options: SnapshotOptions,
    recording: Recording,
    /// Real directories that were read, or are being read.
    entered: BTreeSet<String>,
    /// Interfaces that are left out.
    left_out: BTreeSet<String>,
    notes: Vec<String>,
}

impl Recorder<'_> {
    fn sys(&mut self, routed: &BTreeSet<String>) {
        self.leave_out_idle_interfaces(routed);
        for (directory, place) in LINK_DIRECTORIES {
            let names = self.names(directory);
            if self.host.list(directory).is_ok() {
                self.insert(directory, Entry::Directory);
            }
            for name in names {
                let unwanted = match directory {
                    "/sys/class/misc" => !rules::MISC.contains(&name.as_str()),
                    "/sys/class/net" => self.left_out.contains(&name),
                    _ => false,
                };
                if !unwanted {
                    self.follow(&format!("{directory}/{name}"), place);
                }
            }
        }
        self.enter("/sys/kernel/iommu_groups", Place::Groups);
        self.enter("/sys/module/vfio/parameters", Place::VfioParameters);
    }

    /// Records a link of a bus or class, and what it leads to.
    fn follow(&mut self, path: &str, place: Place) {
        match self.host.link(path) {
            Ok(target) => {
                let real = resolve(path, &target);
                self.insert(path, Entry::Link(target));
                if let Some(real) = real {
                    self.enter(&real, place);
                }
            }
            // `/sys/class/net/bonding_masters` is a file; anything else here is junk, and junk is worth a test.
            Err(error) if is_no_link(&error) => match self.host.list(path) {
                Ok(_) => self.insert(path, Entry::Directory),
                Err(_) => self.file(path),
            },
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn enter(&mut self, directory: &str, place: Place) {
        if !self.entered.insert(directory.to_owned()) {
            return;
        }
        let names = match self.host.list(directory) {
            Ok(names) => names,
            Err(_) => return,
        };
        for name in names {
            let path = format!("{directory}/{name}");
            match rules::take(place, &name, self.options.identities) {
                Take::Nothing => {}
                Take::File => self.file(&path),
                Take::Link if self.is_left_out(&name) => {}
                Take::Link => match self.host.link(&path) {
                    Ok(target) => self.insert(&path, Entry::Link(target)),
                    Err(error) => self.unreadable(&path, &error),
                },
                Take::Enter(Place::Net) if self.left_out.contains(&name) => {}
                Take::Enter(inner) => self.enter(&path, inner),
            }
        }
        if !self.recording.has_below(directory) {
            self.insert(directory, Entry::Directory);
        }
    }

    /// Whether a link `lower_NAME` or `upper_NAME` leads to an interface that is left out.
    fn is_left_out(&self, name: &str) -> bool {
        let other = name.strip_prefix("lower_").or_else(|| name.strip_prefix("upper_"));
        other.is_some_and(|other| self.left_out.contains(other))
    }

    /// A virtual interface matters where something that matters lies below it, or a default route leaves through it.
    fn leave_out_idle_interfaces(&mut self, routed: &BTreeSet<String>) {
        let (mut idle, mut wanted) = (Vec::new(), Vec::new());
        for name in self.names("/sys/class/net") {
            let target = self.host.link(&format!("/sys/class/net/{name}"));
            let is_virtual = target.is_ok_and(|target| target.contains("/devices/virtual/net/"));
            if is_virtual && !routed.contains(&name) {
                idle.push(name);
            } else {
                wanted.push(name);
            }
        }
        self.left_out.extend(idle);
        // Upwards from each, through bonds and the VLANs on top of them.
        while let Some(name) = wanted.pop() {
            for above in self.names(&format!("/sys/class/net/{name}")) {
                if let Some(above) = above.strip_prefix("upper_")
                    && self.left_out.remove(above)
                {
                    wanted.push(above.to_owned());
                }
            }
        }
    }

    fn file(&mut self, path: &str) {
        match self.host.content(path) {
            Ok(content) => self.insert(path, Entry::File(content)),
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn unreadable(&mut self, path: &str, error: &io::Error) {
        // It went while we looked, or it is a directory that nobody expects.
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) {
            return;
        }
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
        let errno = if errno == Errno::UnknownErrno { Errno::EIO } else { errno };
        self.insert(path, Entry::Unreadable(errno));
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        match self.recording.insert(path, entry) {
            Ok(()) | Err(EntryError::Twice(_)) => {}
            Err(error) => self.notes.push(format!("{LEFT_OUT}: {error}")),
        }
    }

    fn names(&self, directory: &str) -> Vec<String> {
        self.host.list(directory).unwrap_or_default()
    }

    fn dev(&mut self) {
        if !self.host.shows_nodes_at("/dev/null") {
            self.notes.push("/dev was not seen: its nodes are unknown".to_owned());
            return;
        }
        self.insert("/dev", Entry::Directory);
        for directory in ["/dev", "/dev/net", "/dev/infiniband", "/dev/vfio", "/dev/vfio/devices"] {
            for name in self.names(directory) {
                let path = format!("{directory}/{name}");
                if !self.is_wanted_node(&path) {
                    continue;
                }
                if let Some((number, mode)) = self.host.node_and_mode(&path) {
                    self.insert(&path, Entry::Node(Node { number, mode }));
                }
            }
        }
    }

    fn is_wanted_node(&self, path: &str) -> bool {
        let uacce = path.strip_prefix("/dev/").map(|name| format!("/sys/class/uacce/{name}"));
        rules::is_wanted_node(path) || uacce.is_some_and(|link| self.recording.get(&link).is_some())
    }

    fn answers(&mut self) -> Option<Answers> {
        let netlink = self.host.netlink();
        let known = netlink.links().and_then(|links| Ok((links, netlink.default_routes()?)));
        match known {
            Ok((links, routes)) => {
                Some(Answers { devlinks: self.devlinks(), ..name_answers(&links, &routes) })
            }
            Err(error) => {
                self.notes.push(format!("netlink could not be read: {error}; links and routes are unknown"));
                None
            }
        }
    }

    /// What devlink says of the functions and subfunctions, as far as it is ever asked.
    fn devlinks(&self) -> Vec<RecordedDevlink> {
        let netlink = self.host.netlink();
        let mut found = Vec::new();
        for bus in ["pci", "auxiliary"] {
            for name in self.names(&format!("/sys/bus/{bus}/devices")) {
                let device = format!("{bus}/{name}");
                let mut info = netlink.versions(&device).unwrap_or_default();
                info.retain(|key, _| key == DDP_PROFILE);
                let devlink = RecordedDevlink {
                    eswitch: match netlink.eswitch_mode(&device) {
                        Ok(mode) => mode.map(|mode| mode.to_string()),
                        Err(_) => Some("EPERM".to_owned()),
                    },
                    enable_rdma: netlink.enables_rdma(&device).unwrap_or_default(),
                    info,
                    device,
                };
                // Without privileges the kernel refuses before it looks for the device.
                let is_bare = devlink.info.is_empty() && devlink.enable_rdma.is_none();
                if !(is_bare && devlink.eswitch.as_deref().is_none_or(|mode| mode == "EPERM")) {
                    found.push(devlink);
                }
            }
        }
        found
    }

    fn finish(mut self, answers: Option<Answers>) -> Recording {
        let answers = answers.map(|mut answers| {
            answers.links.retain(|link| !self.left_out.contains(&link.name));
            for link in &mut answers.links {
                // Who is left out has no name here.
                for other in [&mut link.master, &mut link.lower] {
                    other.take_if(|name| self.left_out.contains(name.as_str()));
                }
            }
            answers
        });
        self.recording.set_answers(answers);
        if !self.options.identities {
            hide_identities(&mut self.recording);
        }
        self.recording.set_header(self.notes.iter().map(String::as_str));
        self.recording
    }
}

/// Writes names where the kernel gives indexes.
fn name_answers(links: &[Link], routes: &[Route]) -> Answers {
    let name = |index: u32| {
        let link = links.iter().find(|link| link.index == index);
        link.map_or_else(|| index.to_string(), |link| link.name.clone())
    };
    let link = |link: &Link| RecordedLink {
        index: link.index,
        name: link.name.clone(),
        up: link.up,
        carrier: link.carrier,
        alternative_names: link.alternative_names.clone(),
        master: link.master.map(name),
        lower: link.lower.map(name),
        kind: link.kind.clone(),
    };
    let route = |route: &Route| RecordedRoute {
        family: route.family,
        interfaces: route.interfaces.iter().map(|&index| name(index)).collect(),
        gateway: route.gateway.as_ref().and_then(|gateway| gateway.parse().ok()),
        table: route.table,
        protocol: route.protocol,
        metric: route.metric,
        kind: "unicast".to_owned(),
    };
    Answers {
        links: links.iter().map(link).collect(),
        routes: routes.iter().map(route).collect(),
        devlinks: Vec::new(),
    }
}

/// Where a link of sysfs leads, without asking the file system: `..` stands at its beginning only.
fn resolve(path: &str, target: &str) -> Option<String> {
    let mut directory = path.rsplit_once('/')?.0;
    let mut rest = target;
    while let Some(next) = rest.strip_prefix("../") {
        directory = directory.rsplit_once('/')?.0;
        rest = next;
    }
    (!rest.starts_with('/')).then(|| format!("{directory}/{rest}"))
}

/// `readlink` of what is no link.
fn is_no_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EINVAL as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_sysfs_is_resolved_from_its_own_directory() {
        let link = "/sys/bus/pci/devices/0000:00:03.0";
        assert_eq!(
            resolve(link, "../../../devices/pci0000:00/0000:00:03.0").as_deref(),
            Some("/sys/devices/pci0000:00/0000:00:03.0")
        );
        assert_eq!(resolve(link, "../../../../../../etc"), None);
        assert_eq!(resolve(link, "/etc"), None);
    }

    #[test]
    fn virtual_interfaces_are_recorded_where_a_device_lies_below_or_a_route_leaves_through_them() {
        let interface = |name: &str, index: u32, links: &str| {
            format!("\n/sys/devices/virtual/net/{name}/\n  ifindex = {index}\n{links}")
        };
        let text = [
            "pcidp-host 1

/sys/class/net/
  bond0 -> ../../devices/virtual/net/bond0
  bond0.7 -> ../../devices/virtual/net/bond0.7
  bridge0 -> ../../devices/virtual/net/bridge0
  eth0 -> ../../devices/pci0000:00/0000:00:03.0/net/eth0
  tun0 -> ../../devices/virtual/net/tun0
  veth0 -> ../../devices/virtual/net/veth0

/sys/devices/pci0000:00/0000:00:03.0/net/eth0/
  ifindex = 2
  master -> ../../../../virtual/net/bond0
  upper_bond0 -> ../../../../virtual/net/bond0
",
            &interface("bond0", 3, "  lower_eth0 -> ../../../pci0000:00/0000:00:03.0/net/eth0\n  upper_bond0.7 -> ../bond0.7\n"),
            &interface("bond0.7", 4, "  lower_bond0 -> ../bond0\n"),
            &interface("bridge0", 5, "  lower_veth0 -> ../veth0\n"),
            &interface("tun0", 6, ""),
            &interface("veth0", 7, "  upper_bridge0 -> ../bridge0\n"),
            "\n[netlink]\n  link 5 bridge0 up\n  link 6 tun0 up\n  link 7 veth0 up master=bridge0\n  route inet default dev=tun0\n",
        ]
        .concat();
        let host = Recording::parse(&text).unwrap().lay_out().unwrap();
        let recording = record(&host, SnapshotOptions::default());
        for (name, is_there) in [
            ("bond0", true),
            ("bond0.7", true),
            ("bridge0", false),
            ("eth0", true),
            ("tun0", true),
            ("veth0", false),
        ] {
            let link = format!("/sys/class/net/{name}");
            assert_eq!(recording.get(&link).is_some(), is_there, "{name}");
        }
        assert!(!recording.to_string().contains("veth0"));
        assert_eq!(recording.answers().unwrap().links.len(), 1);
    }

    #[test]
    fn this_machine_is_recorded_with_its_functions_and_its_default_route_and_without_hardware_addresses() {
        let host = HostRoot::live();
        let recording = record(&host, SnapshotOptions::default());
        for address in host.list("/sys/bus/pci/devices").unwrap_or_default() {
            let link = format!("/sys/bus/pci/devices/{address}");
            let Some(Entry::Link(target)) = recording.get(&link) else { panic!("{link} is missing") };
            let vendor = format!("{}/vendor", resolve(&link, target).unwrap());
            assert!(recording.get(&vendor).is_some(), "{vendor} is missing");
        }
        let answers = recording.answers().unwrap();
        let routes = host.netlink().default_routes().unwrap();
        assert_eq!(answers.routes.len(), routes.len());
        let text = recording.to_string();
        for link in host.list("/sys/class/net").unwrap_or_default() {
            let address = host.read(&format!("/sys/class/net/{link}/address")).unwrap_or_default();
            let is_set = address.bytes().any(|byte| !matches!(byte, b'0' | b':'));
            assert!(!is_set || !text.contains(&address), "{address} of {link}");
        }
        assert_eq!(Recording::parse(&text).unwrap(), recording);
        let again = record(&recording.lay_out().unwrap(), SnapshotOptions::default());
        assert_eq!(again.entries().collect::<Vec<_>>(), recording.entries().collect::<Vec<_>>());
        assert_eq!(again.answers(), recording.answers());
    }
}
