//! The netdevs of a PCI function.

use std::collections::HashMap;
use std::io;

use super::directory::Directory;
use super::netlink::Link;
use super::wanted::WantedNetdevs;
use crate::model::{LinkState, LinkType, Netdev};

/// The interfaces as netlink told them when the pass began.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: HashMap<String, Link>,
    names: HashMap<u32, String>,
}

impl Links {
    pub(super) fn new(links: Vec<Link>) -> Self {
        let names = links.iter().map(|link| (link.index, link.name.clone())).collect();
        let links = links.into_iter().map(|link| (link.name.clone(), link)).collect();
        Self { links, names }
    }

    /// The name under which netlink told a netdev, where it was renamed since: its index is still the same.
    fn earlier_name(&self, function: &Directory<'_>, place: &str, name: &str) -> Option<&String> {
        if self.names.is_empty() || self.links.contains_key(name) {
            return None;
        }
        let index = function.read(&format!("{place}/{name}/ifindex")).ok()?.parse().ok()?;
        self.names.get(&index)
    }
}

/// The netdevs below a function.
#[derive(Debug, Default)]
pub(super) struct Netdevs {
    /// Its own.
    pub(super) own: Vec<Netdev>,
    /// Those that stand for its VFs and SFs in switchdev mode. One that came back from a pod can have any name.
    pub(super) representors: Vec<Netdev>,
    /// Names that netdevs have got since netlink told of them, with the earlier ones.
    pub(super) renamed: Vec<(String, String)>,
}

/// Reads all netdevs of a function: in `net/`, and below a virtio device, where a driver put one between.
///
/// `is_legacy` is asked only where a port name looks like a representor's.
pub(super) fn of_function(
    function: &Directory<'_>,
    wanted: WantedNetdevs,
    links: &Links,
    is_legacy: impl FnOnce() -> bool,
) -> io::Result<Netdevs> {
    let mut reader = Reader { function, wanted, links, netdevs: Vec::new(), renamed: Vec::new() };
    for entry in function.entries() {
        match entry.as_str() {
            "net" => reader.read("net")?,
            virtio if is_numbered(virtio, "virtio") => {
                reader.read(&format!("{virtio}/net"))?;
            }
            vdpa if is_numbered(vdpa, "vdpa") => {
                for virtio in list(function, vdpa)?.iter().filter(|entry| is_numbered(entry, "virtio")) {
                    reader.read(&format!("{vdpa}/{virtio}/net"))?;
                }
            }
            _ => {}
        }
    }
    let Reader { netdevs, renamed, .. } = reader;
    let represents = |netdev: &Netdev| netdev.port_name.as_deref().is_some_and(is_representor);
    let found = match netdevs.iter().any(represents) && is_legacy() {
        true => Netdevs { own: netdevs, ..Netdevs::default() },
        false => without_representors(netdevs),
    };
    Ok(Netdevs { renamed, ..found })
}

struct Reader<'a> {
    function: &'a Directory<'a>,
    wanted: WantedNetdevs,
    links: &'a Links,
    netdevs: Vec<Netdev>,
    renamed: Vec<(String, String)>,
}

impl Reader<'_> {
    fn read(&mut self, place: &str) -> io::Result<()> {
        let Self { function, wanted, links, netdevs, renamed } = self;
        let names = list(function, place)?;
        netdevs.reserve_exact(names.len());
        for name in names {
            let attribute = |wanted: bool, attribute: &str| {
                wanted.then(|| function.read(&format!("{place}/{name}/{attribute}")).ok()).flatten()
            };
            let earlier = links.earlier_name(function, place, &name);
            renamed.extend(earlier.map(|earlier| (name.clone(), earlier.clone())));
            let told = links.links.get(earlier.unwrap_or(&name));
            netdevs.push(Netdev {
                alternative_names: told.map(|link| link.alternative_names.clone()).unwrap_or_default(),
                link: told
                    .filter(|_| wanted.link)
                    .map(|link| LinkState { up: link.up, carrier: link.carrier }),
                link_type: attribute(wanted.link_type, "type").and_then(|number| link_type(&number)),
                port_name: attribute(wanted.port_name, "phys_port_name").filter(|port| !port.is_empty()),
                name,
            });
        }
        Ok(())
    }
}

/// The names in a directory that need not exist: a netdev may have gone into a pod with its directory.
fn list(function: &Directory<'_>, place: &str) -> io::Result<Vec<String>> {
    match function.list(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

fn is_numbered(entry: &str, stem: &str) -> bool {
    entry
        .strip_prefix(stem)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn link_type(number: &str) -> Option<LinkType> {
    match number {
        "1" => Some(LinkType::Ether),
        "32" => Some(LinkType::Infiniband),
        _ => None,
    }
}

fn without_representors(netdevs: Vec<Netdev>) -> Netdevs {
    let (representors, mut own): (Vec<_>, Vec<_>) =
        netdevs.into_iter().partition(|netdev| netdev.port_name.as_deref().is_some_and(is_representor));
    // In switchdev mode the uplink calls itself `p<N>`; what has no port name beside it is not the uplink.
    let uplink = |netdev: &Netdev| netdev.port_name.as_deref().is_some_and(is_uplink);
    if own.iter().any(uplink) {
        own.retain(uplink);
    }
    Netdevs { own, representors, renamed: Vec::new() }
}

/// Whether a port name is that of a local VF (`pf0vf3`) or SF (`pf0sf3`); one of another controller begins with `c`.
pub(super) fn represents(port: &str, kind: &str, index: u32) -> bool {
    let number = port.strip_prefix("pf").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    number.and_then(|rest| rest.strip_prefix(kind)).is_some_and(|text| text == index.to_string())
}

/// `p0`, or `p0s1` of a split port: `devlink_port_phys_port_name_get`
/// (<https://github.com/torvalds/linux/blob/master/net/devlink/port.c>).
fn is_uplink(port: &str) -> bool {
    is_numbered(port, "p")
        || port.split_once('s').is_some_and(|(port, part)| is_numbered(port, "p") && is_numbered(part, ""))
}

/// `pf0`, `pf0vf1`, `pf0sf3`, and the same of another controller, `c1pf0vf5`.
fn is_representor(port: &str) -> bool {
    let port = match port.strip_prefix('c').and_then(|rest| rest.find("pf").map(|at| rest.split_at(at))) {
        Some((controller, rest)) if is_numbered(controller, "") => rest,
        _ => port,
    };
    port.strip_prefix("pf").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_representor_is_matched_by_kind_and_number_of_the_local_controller() {
        assert!(represents("pf0vf12", "vf", 12) && represents("pf1sf3", "sf", 3));
        for port in ["pf0vf1", "pf0sf12", "c1pf0vf12", "p0", "pf0"] {
            assert!(!represents(port, "vf", 12), "{port}");
        }
    }

    #[test]
    fn uplinks_and_representors_are_told_by_their_port_names() {
        for port in ["p0", "p1", "p12", "p0s1"] {
            assert!(is_uplink(port) && !is_representor(port), "{port}");
        }
        for port in ["pf0vf1", "pf0sf3", "c1pf0vf5", "c1pf0", "pf0", "pf0hpf", "pf12vf100"] {
            assert!(!is_uplink(port) && is_representor(port), "{port}");
        }
        for port in ["", "p", "px", "port0", "pfx", "c0", "1"] {
            assert!(!is_uplink(port) && !is_representor(port), "{port}");
        }
    }
}
