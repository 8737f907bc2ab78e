//! The guard of the node's own uplink: which netdevs carry a default route.

use std::collections::{HashMap, HashSet};

use super::netlink::{Family, Link, PROTOCOL_RA, Route, TABLE_MAIN};
use crate::model::{DefaultRoute, Note};

/// The netdevs through which default routes leave, with the route of each.
#[derive(Debug, Default)]
pub(super) struct Uplinks {
    by_name: HashMap<String, DefaultRoute>,
    /// Default routes that do not count, and why.
    pub(super) notes: Vec<Note>,
}

/// The master of all ports of an Open vSwitch; its bridges are interfaces of this kind.
const OVS: &str = "ovs-system";
const OVS_KIND: &str = "openvswitch";

impl Uplinks {
    pub(super) fn new(links: &[Link], routes: &[Route]) -> Self {
        let topology = Topology::new(links);
        let mut uplinks = Self::default();
        for (route, counts) in judge(routes) {
            let text = describe(route, &topology);
            if !counts {
                let cause =
                    "default route of a policy table; it does not keep a device out of a pool".to_owned();
                uplinks.notes.push(Note { path: text, cause });
                continue;
            }
            for interface in &route.interfaces {
                for through in topology.below(*interface) {
                    let Some(name) = through.last().cloned() else {
                        continue;
                    };
                    let found = DefaultRoute { route: text.clone(), through };
                    uplinks.by_name.entry(name).or_insert(found);
                }
            }
        }
        uplinks
    }

    /// The default route that leaves through a netdev, by the name that it had when the links were told.
    pub(super) fn of(&self, name: &str) -> Option<&DefaultRoute> {
        self.by_name.get(name)
    }
}

/// The routes that are somebody's concern, each with whether it guards.
///
/// IPv4: any default of the main table. IPv6: one that did not come from a router advertisement; and on a node without
/// an IPv4 default the advertised ones of the lowest metric, for idle VFs learn such routes too.
fn judge(routes: &[Route]) -> Vec<(&Route, bool)> {
    let main = |route: &Route| route.table == TABLE_MAIN;
    let advertised = |route: &Route| route.family == Family::Inet6 && route.protocol == PROTOCOL_RA;
    let has_inet = routes.iter().any(|route| main(route) && route.family == Family::Inet);
    let lowest =
        routes.iter().filter(|route| main(route) && advertised(route)).map(|route| route.metric).min();
    let judged = routes.iter().filter_map(|route| match (main(route), advertised(route)) {
        (true, false) => Some((route, true)),
        (true, true) => (!has_inet && Some(route.metric) == lowest).then_some((route, true)),
        // A table that only routers advertised into is nobody's policy.
        (false, advertised) => (!advertised).then_some((route, false)),
    });
    judged.collect()
}

fn describe(route: &Route, topology: &Topology) -> String {
    let mut text = match route.family {
        Family::Inet => "default".to_owned(),
        Family::Inet6 => "default (IPv6)".to_owned(),
    };
    if let Some(gateway) = &route.gateway {
        text += &format!(" via {gateway}");
    }
    for interface in &route.interfaces {
        text += &format!(" dev {}", topology.name(*interface));
    }
    if route.table != TABLE_MAIN {
        text += &format!(" table {}", route.table);
    }
    if route.metric != 0 {
        text += &format!(" metric {}", route.metric);
    }
    text
}

/// How interfaces lie over one another.
struct Topology<'a> {
    links: HashMap<u32, &'a Link>,
    below: HashMap<u32, Vec<u32>>,
}

impl<'a> Topology<'a> {
    fn new(links: &'a [Link]) -> Self {
        let mut below: HashMap<u32, Vec<u32>> = HashMap::new();
        let ovs = links.iter().find(|link| link.name == OVS).map(|link| link.index);
        for link in links {
            if let Some(master) = link.master {
                below.entry(master).or_default().push(link.index);
            }
            if let Some(lower) = link.lower {
                below.entry(link.index).or_default().push(lower);
            }
            // The kernel does not tell which ports a bridge of an Open vSwitch has, so all of its ports count.
            if link.kind == OVS_KIND && link.name != OVS {
                below.entry(link.index).or_default().extend(ovs);
            }
        }
        Self { links: links.iter().map(|link| (link.index, link)).collect(), below }
    }

    fn name(&self, index: u32) -> String {
        self.links.get(&index).map_or_else(|| format!("if{index}"), |link| link.name.clone())
    }

    /// Every interface from `top` down, each with the way to it.
    fn below(&self, top: u32) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut open = vec![(top, Vec::new())];
        while let Some((index, mut through)) = open.pop() {
            if !seen.insert(index) {
                continue;
            }
            through.push(self.name(index));
            for lower in self.below.get(&index).into_iter().flatten() {
                open.push((*lower, through.clone()));
            }
            found.push(through);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.to_owned(), ..Link::default() }
    }

    fn route(family: Family, interface: u32) -> Route {
        Route {
            family,
            table: TABLE_MAIN,
            interfaces: vec![interface],
            gateway: None,
            protocol: 4,
            metric: 0,
        }
    }

    fn guarded(links: &[Link], routes: &[Route]) -> Vec<String> {
        let mut names: Vec<String> = Uplinks::new(links, routes).by_name.into_keys().collect();
        names.sort();
        names
    }

    #[test]
    fn a_default_route_guards_the_netdevs_below_vlan_bridge_and_bond() {
        let links = [
            link(1, "eth0"),
            link(2, "eth1"),
            Link { kind: "bond".to_owned(), ..link(3, "bond0") },
            Link { kind: "vlan".to_owned(), lower: Some(3), ..link(4, "bond0.7") },
            link(5, "br0"),
            link(6, "eth2"),
        ];
        let mut links = links.to_vec();
        links[0].master = Some(3);
        links[1].master = Some(3);
        links[3].master = Some(5);
        let routes = [route(Family::Inet, 5)];
        assert_eq!(guarded(&links, &routes), ["bond0", "bond0.7", "br0", "eth0", "eth1"]);
        let uplinks = Uplinks::new(&links, &routes);
        assert_eq!(
            uplinks.by_name["eth1"].to_string(),
            "default dev br0 (through br0 > bond0.7 > bond0 > eth1)"
        );
    }

    #[test]
    fn a_bridge_of_an_open_vswitch_guards_every_port_of_it() {
        let mut links = vec![link(1, "eth0"), link(2, OVS), link(3, "br-ex"), link(4, "eth1")];
        links[0].master = Some(2);
        links[1].kind = OVS_KIND.to_owned();
        links[2].kind = OVS_KIND.to_owned();
        assert_eq!(guarded(&links, &[route(Family::Inet, 3)]), ["br-ex", "eth0", OVS]);
    }

    #[test]
    fn every_hop_of_a_multipath_route_is_guarded() {
        let links = [link(1, "eth0"), link(2, "eth1")];
        let routes = [Route { interfaces: vec![1, 2], ..route(Family::Inet, 1) }];
        assert_eq!(guarded(&links, &routes), ["eth0", "eth1"]);
    }

    #[test]
    fn advertised_routes_guard_only_a_node_without_an_ipv4_default_and_only_the_best_of_them() {
        let links = [link(1, "eth0"), link(2, "vf0"), link(3, "vf1")];
        let advertised =
            |interface, metric| Route { protocol: PROTOCOL_RA, metric, ..route(Family::Inet6, interface) };
        let only_advertised = [advertised(1, 100), advertised(2, 1024)];
        assert_eq!(guarded(&links, &only_advertised), ["eth0"]);
        let with_inet = [route(Family::Inet, 3), advertised(1, 100)];
        assert_eq!(guarded(&links, &with_inet), ["vf1"]);
        assert_eq!(guarded(&links, &[route(Family::Inet6, 2), advertised(1, 1)]), ["eth0", "vf0"]);
    }

    #[test]
    fn a_default_route_of_a_policy_table_only_warns() {
        let routes = [Route { table: 100, ..route(Family::Inet, 1) }];
        let uplinks = Uplinks::new(&[link(1, "eth0")], &routes);
        assert!(uplinks.by_name.is_empty());
        assert_eq!(uplinks.notes[0].path, "default dev eth0 table 100");
    }

    #[test]
    fn a_loop_of_interfaces_ends() {
        let mut links = vec![link(1, "a"), link(2, "b")];
        links[0].master = Some(2);
        links[1].master = Some(1);
        assert_eq!(guarded(&links, &[route(Family::Inet, 1)]), ["a", "b"]);
    }
}
