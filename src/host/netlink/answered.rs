//! Bytes that a kernel sent, read as its answers are.

use std::collections::BTreeMap;
use std::io;

use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::exchange::read_datagram;
use super::kernel::{default_routes_in, links_in};
use super::{EswitchMode, Family, Link, Netlink, Route, devlink};

/// One datagram, as the answer to whatever is asked: for tests of what a kernel really sent, and of what none ever would.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a>(pub &'a [u8]);

impl Answered<'_> {
    fn messages(&self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut answers = Vec::new();
        read_datagram(self.0, &mut answers)?;
        Ok(answers)
    }
}

impl Netlink for Answered<'_> {
    fn links(&self) -> io::Result<Vec<Link>> {
        Ok(links_in(&self.messages()?))
    }

    fn default_routes(&self) -> io::Result<Vec<Route>> {
        let messages = self.messages()?;
        // The kernel is asked for one family at a time.
        let families = [(Family::Inet, AddressFamily::Inet), (Family::Inet6, AddressFamily::Inet6)];
        let of_family = |(family, wanted)| {
            let is_it = |message: &&RouteNetlinkMessage| match message {
                RouteNetlinkMessage::NewRoute(route) => route.header.address_family == wanted,
                _ => false,
            };
            let messages: Vec<_> = messages.iter().filter(is_it).cloned().collect();
            default_routes_in(family, &messages)
        };
        Ok(families.into_iter().flat_map(of_family).collect())
    }

    fn versions(&self, _: &str) -> io::Result<BTreeMap<String, String>> {
        Ok(devlink::versions_in(&devlink::read(self.0)?))
    }

    fn eswitch_mode(&self, _: &str) -> io::Result<Option<EswitchMode>> {
        Ok(devlink::eswitch_mode_in(&devlink::read(self.0)?))
    }

    fn enables_rdma(&self, _: &str) -> io::Result<Option<bool>> {
        Ok(devlink::flag(&devlink::read(self.0)?))
    }
}
