//! The kernel's own answers, over a blocking netlink socket.

use std::collections::BTreeMap;
use std::io;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::exchange::{Ask, exchange};
use super::{EswitchMode, Family, Link, Netlink, Route, devlink};

/// Asks the kernel of this network namespace. Needs no privileges.
#[derive(Debug, Clone, Copy)]
pub struct KernelNetlink;

impl Netlink for KernelNetlink {
    fn links(&self) -> io::Result<Vec<Link>> {
        Ok(links_in(&dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?))
    }

    fn default_routes(&self) -> io::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for (family, address_family) in
            [(Family::Inet, AddressFamily::Inet), (Family::Inet6, AddressFamily::Inet6)]
        {
            let mut question = RouteMessage::default();
            question.header.address_family = address_family;
            routes.extend(default_routes_in(family, &dump(RouteNetlinkMessage::GetRoute(question))?));
        }
        Ok(routes)
    }

    fn versions(&self, device: &str) -> io::Result<BTreeMap<String, String>> {
        devlink::versions(device)
    }

    fn eswitch_mode(&self, device: &str) -> io::Result<Option<EswitchMode>> {
        devlink::eswitch_mode(device)
    }

    fn enables_rdma(&self, device: &str) -> io::Result<Option<bool>> {
        devlink::enables_rdma(device)
    }
}

/// Asks for a whole table.
fn dump(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    exchange(NETLINK_ROUTE, Ask::Dump, question)
}

pub(super) fn links_in(answers: &[RouteNetlinkMessage]) -> Vec<Link> {
    let link = |message: &RouteNetlinkMessage| match message {
        RouteNetlinkMessage::NewLink(link) => Some(read_link(link)),
        _ => None,
    };
    answers.iter().filter_map(link).collect()
}

pub(super) fn default_routes_in(family: Family, answers: &[RouteNetlinkMessage]) -> Vec<Route> {
    let route = |message: &RouteNetlinkMessage| match message {
        RouteNetlinkMessage::NewRoute(route) => read_default(family, route),
        _ => None,
    };
    answers.iter().filter_map(route).collect()
}

fn read_link(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Carrier(carrier) => link.carrier = Some(*carrier != 0),
            LinkAttribute::Controller(index) => link.master = Some(*index).filter(|&index| index != 0),
            // The peer of a veth in another namespace has an index of that namespace.
            LinkAttribute::Link(index) if *index != link.index => link.lower = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                let kinds = infos.iter().filter_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
                link.kind = kinds.collect();
            }
            LinkAttribute::PropList(properties) => {
                link.alternative_names.extend(properties.iter().filter_map(|property| match property {
                    Prop::AltIfName(name) => Some(name.clone()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    link
}

fn read_default(family: Family, message: &RouteMessage) -> Option<Route> {
    if message.header.destination_prefix_length != 0 || message.header.kind != RouteType::Unicast {
        return None;
    }
    let mut route = Route {
        family,
        table: u32::from(message.header.table),
        interfaces: Vec::new(),
        gateway: None,
        protocol: u8::from(message.header.protocol),
        metric: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Oif(index) => route.interfaces.push(*index),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => route.gateway = Some(address.to_string()),
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => {
                route.gateway = Some(address.to_string());
            }
            RouteAttribute::MultiPath(hops) => {
                route.interfaces.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_loopback_interface_and_every_route_has_an_interface() {
        let links = KernelNetlink.links().unwrap();
        let loopback = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(loopback.index, 1);
        for route in KernelNetlink.default_routes().unwrap() {
            for interface in &route.interfaces {
                assert!(links.iter().any(|link| link.index == *interface), "{route:?}");
            }
        }
    }
}
