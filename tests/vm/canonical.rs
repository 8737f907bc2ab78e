//! Recordings without what differs from boot to boot, so that two of the same machine can be compared.
//!
//! Drivers are probed in parallel, and numbers are handed out in the order of arrival: names and indexes of interfaces,
//! numbers of IOMMU groups, of VFIO and userspace I/O devices, and device numbers. Each is replaced by the device that it
//! belongs to, wherever it stands. A mistake in any link, number or node is still a difference.

use std::collections::{BTreeMap, BTreeSet};

use pcidp::host::recording::{Entry, Recording};

/// What one recording has and the other has not: `- ` and `+ `, then a path and what is there.
pub(crate) fn differences(before: &Recording, after: &Recording) -> Vec<String> {
    let (mut before_lines, mut after_lines) = (lines(before), lines(after));
    // A recording without answers of netlink says nothing of them.
    if before.answers().is_none() || after.answers().is_none() {
        before_lines.retain(|line| !line.starts_with("netlink "));
        after_lines.retain(|line| !line.starts_with("netlink "));
    }
    let gone = before_lines.difference(&after_lines).map(|line| format!("- {line}"));
    let come = after_lines.difference(&before_lines).map(|line| format!("+ {line}"));
    let mut all: Vec<String> = gone.chain(come).collect();
    all.sort_by(|a, b| a[2..].cmp(&b[2..]));
    all
}

fn lines(recording: &Recording) -> BTreeSet<String> {
    let names = Names::new(recording);
    let mut lines = BTreeSet::new();
    for (path, entry) in recording.entries() {
        let text = match entry {
            Entry::File(_) if path.ends_with("/ifindex") => "an index".to_owned(),
            Entry::File(number) if path.ends_with("/dev") => {
                format!("number {}", names.number(number.trim()))
            }
            Entry::File(content) => format!("= {content:?}"),
            Entry::Link(target) => format!("-> {}", names.path(target)),
            Entry::Unreadable(errno) => format!("! {errno:?}"),
            Entry::Node(node) => {
                let number = node.number.to_string();
                let (kind, number) = number.split_once(' ').unwrap();
                format!("{kind} {} {:04o}", names.number(number), node.mode)
            }
            Entry::Directory => "empty".to_owned(),
        };
        lines.insert(format!("{} {text}", names.path(path)));
    }
    let Some(answers) = recording.answers() else { return lines };
    for link in &answers.links {
        let mut link = link.clone();
        link.index = 0;
        link.name = names.netdev(&link.name);
        link.master = link.master.map(|name| names.netdev(&name));
        link.lower = link.lower.map(|name| names.netdev(&name));
        lines.insert(format!("netlink {link:?}"));
    }
    for route in &answers.routes {
        let mut route = route.clone();
        route.interfaces = route.interfaces.iter().map(|name| names.netdev(name)).collect();
        lines.insert(format!("netlink {route:?}"));
    }
    lines
}

/// Whose a name or number is.
struct Names {
    /// By directory of the name: `net`, `iommu_groups`, `vfio-dev`, `uio`.
    by_kind: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// By `MAJOR:MINOR`, the path of the device that has it.
    numbers: BTreeMap<String, String>,
}

impl Names {
    fn new(recording: &Recording) -> Self {
        let mut names = Self { by_kind: BTreeMap::new(), numbers: BTreeMap::new() };
        for (path, entry) in recording.entries() {
            let Entry::Link(target) = entry else { continue };
            for (class, kind) in
                [("/sys/class/net/", "net"), ("/sys/class/vfio-dev/", "vfio-dev"), ("/sys/class/uio/", "uio")]
            {
                if let Some(name) = path.strip_prefix(class)
                    && let Some(owner) = owner(target, kind)
                {
                    names.add(kind, name, &Self::port(recording, target, owner));
                }
            }
            // A group is named after its first member; entries are sorted.
            if let Some(rest) = path.strip_prefix("/sys/kernel/iommu_groups/")
                && let Some((group, member)) = rest.split_once("/devices/")
            {
                names.add("iommu_groups", group, member);
            }
        }
        for (path, entry) in recording.entries() {
            if let (Some(device), Entry::File(number)) = (path.strip_suffix("/dev"), entry) {
                names.numbers.insert(number.trim().to_owned(), names.path(device));
            }
        }
        names
    }

    /// Several interfaces of one device are told apart by their port names.
    fn port(recording: &Recording, target: &str, owner: &str) -> String {
        let place = target.trim_start_matches("../");
        match recording.get(&format!("/sys/{place}/phys_port_name")) {
            Some(Entry::File(port)) => format!("{owner} port {}", port.trim()),
            _ => owner.to_owned(),
        }
    }

    fn add(&mut self, kind: &'static str, name: &str, owner: &str) {
        let known = self.by_kind.entry(kind).or_default();
        known.entry(name.to_owned()).or_insert_with(|| format!("<{owner}>"));
    }

    fn get(&self, kind: &str, name: &str) -> Option<&String> {
        self.by_kind.get(kind)?.get(name)
    }

    fn netdev(&self, name: &str) -> String {
        self.get("net", name).cloned().unwrap_or_else(|| name.to_owned())
    }

    fn number(&self, number: &str) -> String {
        self.numbers.get(number).map_or_else(|| number.to_owned(), |device| format!("of {device}"))
    }

    /// A path or the target of a link, with each name replaced according to the directory it stands in.
    fn path(&self, path: &str) -> String {
        let mut directory = "";
        let mut renamed = Vec::new();
        for name in path.split('/') {
            renamed.push(self.name(directory, name));
            directory = name;
        }
        renamed.join("/")
    }

    fn name(&self, directory: &str, name: &str) -> String {
        let known = match directory {
            // Of `/dev`, `/sys/class` and `/sys/devices/virtual`.
            "vfio" => {
                let (prefix, group) = match name.strip_prefix("noiommu-") {
                    Some(group) => ("noiommu-", group),
                    None => ("", name),
                };
                self.get("iommu_groups", group).map(|group| format!("{prefix}{group}"))
            }
            "dev" => self.get("uio", name).cloned(),
            kind => self.get(kind, name).cloned(),
        };
        let above = ["lower_", "upper_"]
            .into_iter()
            .find_map(|prefix| Some(format!("{prefix}{}", self.get("net", name.strip_prefix(prefix)?)?)));
        known.or(above).unwrap_or_else(|| name.to_owned())
    }
}

/// The device in whose directory `kind` a link of a class leads; none for a virtual one, whose name is its own.
fn owner<'a>(target: &'a str, kind: &str) -> Option<&'a str> {
    let mut parts = target.rsplit('/').skip(1);
    let directory = parts.next()?;
    let owner = parts.next()?;
    (directory == kind && owner != "virtual").then_some(owner)
}

/// Proves that a comparison lets nothing through but the order of arrival; needs no machine.
pub(crate) mod proof {
    use std::path::Path;

    use super::{Entry, Recording, differences};

    const HOSTS: [&str; 4] = [
        "iommu-2-mixed-vfio-uio",
        "iommu-3-pf-stub",
        "noiommu-1-vfio",
        "soft-1-rdma-pci-auxsf-netdevsim-mdev",
    ];

    pub(crate) fn another_order_of_arrival_is_no_difference() {
        for name in HOSTS {
            let text = text(name);
            // Interfaces in another order, IOMMU groups with other numbers, and userspace I/O from another number on.
            let other = renumber(&text, "eth", |number| 90 - number);
            let other = renumber(&other, "/iommu_groups/", |number| number + 500);
            let other = renumber(&other, "noiommu-", |number| number + 500);
            let other = other
                .replace("uio0", "uio7")
                .replace("char 242:0 ", "char 251:7 ")
                .replace("dev = 242:0", "dev = 251:7");
            // In `/dev/vfio`, `/sys/class/vfio` and `/sys/devices/virtual/vfio`, a group's number stands alone.
            let mut other = renumber(&other, "/virtual/vfio/", |number| number + 500);
            other = lone_groups(&other);
            assert_ne!(text, other);
            let found = differences(&Recording::parse(&text).unwrap(), &Recording::parse(&other).unwrap());
            assert!(found.is_empty(), "{name}: {}", found.join("\n"));
        }
    }

    pub(crate) fn any_other_change_is_a_difference() {
        for name in HOSTS {
            let kept = Recording::parse(&text(name)).unwrap();
            let entries: Vec<(&str, &Entry)> =
                kept.entries().filter(|(path, _)| !path.ends_with("/ifindex")).collect();
            for changed in (0..entries.len()).step_by(41) {
                let mut other = Recording::new();
                for (position, (path, entry)) in entries.iter().enumerate() {
                    let entry = if position == changed { change(entry) } else { (*entry).clone() };
                    other.insert(path, entry).unwrap();
                }
                let found = differences(&kept, &other);
                assert!(!found.is_empty(), "{name}: a change of {} goes unnoticed", entries[changed].0);
            }
        }
    }

    fn change(entry: &Entry) -> Entry {
        match entry {
            Entry::File(content) => Entry::File(format!("{content}1")),
            Entry::Link(target) => Entry::Link(format!("{target}1")),
            _ => Entry::File("changed".to_owned()),
        }
    }

    fn text(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/hosts/{name}.host"));
        std::fs::read_to_string(path).unwrap()
    }

    /// Changes every number that follows a word.
    fn renumber(text: &str, word: &str, new: impl Fn(usize) -> usize) -> String {
        let mut parts = text.split(word);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let number = part[..end].parse().map_or_else(|_| part[..end].to_owned(), |n| new(n).to_string());
            out += &format!("{word}{number}{}", &part[end..]);
        }
        out
    }

    fn lone_groups(text: &str) -> String {
        let mut directory = "";
        let mut out = String::new();
        for line in text.lines() {
            if line.starts_with('/') {
                directory = line;
            }
            let entry =
                line.strip_prefix("  ").filter(|_| matches!(directory, "/dev/vfio/" | "/sys/class/vfio/"));
            let (number, rest) = entry.and_then(|entry| entry.split_once(' ')).unwrap_or_default();
            match number.parse::<usize>() {
                Ok(number) => out += &format!("  {} {rest}\n", number + 500),
                Err(_) => out += &format!("{line}\n"),
            }
        }
        out
    }
}
