//! What a directory cannot hold: links, routes and devlink, as the kernel's netlink tells them.

mod answered;
mod devlink;
mod exchange;
mod kernel;

use std::collections::BTreeMap;
use std::io;

pub use answered::Answered;
pub use kernel::KernelNetlink;

/// Answers of the kernel that are not in a file system. There are two sources: the kernel, and a recording. (What
/// was kept of a kernel's answers, byte by byte, is read by [`Answered`].)
pub trait Netlink: Send + Sync {
    /// All network interfaces (`RTM_GETLINK`).
    ///
    /// # Errors
    /// What the kernel said.
    fn links(&self) -> io::Result<Vec<Link>>;

    /// All default routes of both families and all tables (`RTM_GETROUTE`).
    ///
    /// # Errors
    /// What the kernel said.
    fn default_routes(&self) -> io::Result<Vec<Route>>;

    /// The versions that a device (`pci/0000:17:00.0`) tells through devlink; none where it tells nothing.
    ///
    /// # Errors
    /// What the kernel said.
    fn versions(&self, device: &str) -> io::Result<BTreeMap<String, String>>;

    /// The mode of a device's eswitch; nothing where it has none.
    ///
    /// # Errors
    /// What the kernel said; it asks for CAP_NET_ADMIN.
    fn eswitch_mode(&self, device: &str) -> io::Result<Option<EswitchMode>>;

    /// devlink's `enable_rdma` of a device; nothing where it has no such parameter.
    ///
    /// # Errors
    /// What the kernel said.
    fn enables_rdma(&self, device: &str) -> io::Result<Option<bool>>;
}

/// Mode of the switch inside an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EswitchMode {
    /// VFs have no netdev on the host's side.
    Legacy,
    /// Each VF and SF has a representor.
    Switchdev,
}

impl std::fmt::Display for EswitchMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Legacy => "legacy",
            Self::Switchdev => "switchdev",
        })
    }
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Alternative names.
    pub alternative_names: Vec<String>,
    /// Administratively up.
    pub up: bool,
    /// Carrier, where the kernel tells it.
    pub carrier: Option<bool>,
    /// Index of the master (bond, bridge, VRF, team, OVS).
    pub master: Option<u32>,
    /// Index of the interface below (of a VLAN, say).
    pub lower: Option<u32>,
    /// Kind: `bond`, `vlan`, `openvswitch` …; empty for a plain interface.
    pub kind: String,
}

/// Address family of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
}

/// A default route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Address family.
    pub family: Family,
    /// Routing table; 254 is `main`.
    pub table: u32,
    /// Indexes of the interfaces that it leaves through; several for a multipath route.
    pub interfaces: Vec<u32>,
    /// The gateway, as text.
    pub gateway: Option<String>,
    /// `rtm_protocol`: 2 kernel, 3 boot, 4 static, 9 router advertisement, 16 DHCP
    /// (<https://github.com/torvalds/linux/blob/master/include/uapi/linux/rtnetlink.h>).
    pub protocol: u8,
    /// Metric (`RTA_PRIORITY`).
    pub metric: u32,
}

/// The main routing table.
pub const TABLE_MAIN: u32 = 254;
/// `RTPROT_RA`: the route came from a router advertisement.
pub const PROTOCOL_RA: u8 = 9;

/// For a plain directory: nothing is known.
#[derive(Debug, Clone, Copy)]
pub struct NoNetlink;

impl Netlink for NoNetlink {
    fn links(&self) -> io::Result<Vec<Link>> {
        Err(unknown())
    }

    fn default_routes(&self) -> io::Result<Vec<Route>> {
        Err(unknown())
    }

    fn versions(&self, _: &str) -> io::Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    fn eswitch_mode(&self, _: &str) -> io::Result<Option<EswitchMode>> {
        Ok(None)
    }

    fn enables_rdma(&self, _: &str) -> io::Result<Option<bool>> {
        Ok(None)
    }
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a directory holds no answers of netlink")
}
