//! Tells that the machine may have changed: uevents and rtnetlink of the kernel, and what comes and goes in `/dev`.
//!
//! Every event only means: look again. What the kernel really sends is kept in `testdata/uevents`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_sys::protocols::{NETLINK_KOBJECT_UEVENT, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::HostRoot;

/// The kernel's own messages come in group 1, those of udev in group 2
/// (<https://github.com/torvalds/linux/blob/master/lib/kobject_uevent.c>).
const KERNEL_UEVENTS: u32 = 1;
/// `RTMGRP_LINK | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE`
/// (<https://github.com/torvalds/linux/blob/master/include/uapi/linux/rtnetlink.h>).
const LINKS_AND_ROUTES: u32 = 0x1 | 0x40 | 0x400;
/// Bytes: making 127 VFs with their queues sends some thousand messages at once. The kernel gives less where
/// `net.core.rmem_max` says so; a message that is lost means to look again, too.
const BUFFER: usize = 4 * 1024 * 1024;
/// Directories with the nodes that pools hand over.
const NODES: [&str; 4] = ["/dev", "/dev/vfio", "/dev/vfio/devices", "/dev/infiniband"];

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// Something may be other than before.
    Changed,
    /// Something may be gone, or has lost its link.
    Gone,
}

/// Listens to the kernel.
#[derive(Debug, Default)]
pub struct Watch {
    uevents: Option<AsyncFd<Socket>>,
    routes: Option<AsyncFd<Socket>>,
    nodes: Option<AsyncFd<Nodes>>,
    /// What cannot be listened to, and why.
    pub deaf: Vec<String>,
}

impl Watch {
    /// Listens where this is the machine itself; a directory or a recording tells nothing.
    pub fn new(host: &HostRoot) -> Self {
        let mut watch = Self::default();
        if !host.is_live() {
            return watch;
        }
        let mut deaf = Vec::new();
        let mut note = |what: &str, error: io::Error| deaf.push(format!("{what}: {error}"));
        watch.uevents =
            listen(NETLINK_KOBJECT_UEVENT, KERNEL_UEVENTS).map_err(|error| note("uevents", error)).ok();
        watch.routes = listen(NETLINK_ROUTE, LINKS_AND_ROUTES).map_err(|error| note("rtnetlink", error)).ok();
        if host.shows_nodes_at("/dev") {
            watch.nodes = Nodes::new(host).map_err(|error| note("inotify on /dev", error)).ok();
        }
        watch.deaf = deaf;
        watch
    }

    /// Waits until the machine may have changed. Safe to cancel.
    pub async fn changed(&self) -> Seen {
        tokio::select! {
            seen = hear(self.uevents.as_ref(), uevent) => seen,
            seen = hear(self.routes.as_ref(), rtnetlink) => seen,
            () = nodes(self.nodes.as_ref()) => Seen::Changed,
        }
    }
}

fn listen(protocol: isize, groups: u32) -> io::Result<AsyncFd<Socket>> {
    let mut socket = Socket::new(protocol)?;
    // Smaller is not an error: see `BUFFER`.
    let _ = socket.set_rx_buf_sz(BUFFER as i32);
    socket.set_non_blocking(true)?;
    socket.bind(&SocketAddr::new(0, groups))?;
    readable(socket)
}

#[expect(
    deprecated,
    reason = "what took its place is unsafe; these descriptors live and die with their owners"
)]
fn readable<T: AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(inner, Interest::READABLE)
}

async fn hear(socket: Option<&AsyncFd<Socket>>, judge: impl Fn(&[u8]) -> Option<Seen>) -> Seen {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = socket.readable().await else { return std::future::pending().await };
        let mut worst = None;
        loop {
            match ready.get_inner().recv_from_full() {
                // Only the kernel has port 0.
                Ok((datagram, from)) if from.port_number() == 0 => worst = worst.max(judge(&datagram)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The buffer was full, and something was lost.
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => worst = Some(Seen::Gone),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot listen to the kernel any more; only the slow look is left");
                    return std::future::pending().await;
                }
            }
        }
        ready.clear_ready();
        if let Some(seen) = worst {
            return seen;
        }
    }
}

/// Judges an event of the kernel: `ACTION@DEVPATH`, then `KEY=VALUE`, each ended by a zero. Bytes, for the name of a netdev, which
/// stands in its path, need not be text.
pub fn uevent(datagram: &[u8]) -> Option<Seen> {
    let mut fields = datagram.split(|&byte| byte == 0);
    let first = fields.next()?;
    let (action, at_path) = first.split_at(first.iter().position(|&byte| byte == b'@')?);
    let subsystem = fields.find_map(|field| field.strip_prefix(b"SUBSYSTEM="))?;
    let matters = match subsystem {
        b"pci" | b"vfio" | b"vfio-dev" | b"uacce" | b"uio" | b"auxiliary" | b"virtio" | b"vdpa"
        | b"vhost-vdpa" | b"misc" | b"infiniband" | b"infiniband_verbs" | b"infiniband_mad" => true,
        // The veths of pods come and go; what has a function of its own below it counts.
        b"net" => !at_path.starts_with(b"@/devices/virtual/"),
        // Queues of netdevs come by the hundred.
        _ => false,
    };
    let seen = if matches!(action, b"remove" | b"unbind" | b"offline") { Seen::Gone } else { Seen::Changed };
    matters.then_some(seen)
}

/// Judges a datagram of rtnetlink: links but veths, and default routes.
pub fn rtnetlink(datagram: &[u8]) -> Option<Seen> {
    let mut worst = None;
    let mut rest = datagram;
    while !rest.is_empty() {
        // What cannot be read may matter.
        let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) else {
            return Some(Seen::Changed);
        };
        let length = (message.header.length as usize).next_multiple_of(4).max(4);
        rest = rest.get(length..).unwrap_or_default();
        let NetlinkPayload::InnerMessage(message) = message.payload else { continue };
        worst = worst.max(match message {
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => {
                (!is_veth(&link)).then_some(Seen::Gone)
            }
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
                (route.header.destination_prefix_length == 0).then_some(Seen::Changed)
            }
            _ => None,
        });
    }
    worst
}

fn is_veth(link: &LinkMessage) -> bool {
    link.attributes.iter().any(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => {
            infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth)))
        }
        _ => false,
    })
}

/// The directories of nodes. Not by the crate `notify`: that one is also told of every opened file, and `/dev/null` is one.
#[derive(Debug)]
struct Nodes {
    inotify: Inotify,
    host: Arc<HostRoot>,
}

impl Nodes {
    fn new(host: &HostRoot) -> io::Result<AsyncFd<Self>> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let nodes = Self { inotify, host: Arc::new(host.clone()) };
        nodes.follow()?;
        readable(nodes)
    }

    /// Watches what is there; a directory that is watched already is not watched twice.
    fn follow(&self) -> io::Result<()> {
        let names = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_ONLYDIR;
        for directory in NODES {
            match self.inotify.add_watch(&self.host.place(directory), names) {
                Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether a name that was made or removed can be one of a pool's.
    fn heard(&self) -> bool {
        let mut matters = false;
        while let Ok(events) = self.inotify.read_events() {
            matters |= events.iter().any(|event| {
                let name = event.name.as_ref().and_then(|name| name.to_str()).unwrap_or_default();
                !["tty", "pts", "vcs", "loop", "dm-", "sd", "nvme"]
                    .iter()
                    .any(|other| name.starts_with(other))
            });
        }
        // Another directory may be there now. Where it cannot be watched, uevents and the slow look remain.
        let _ = self.follow();
        matters
    }
}

impl AsRawFd for Nodes {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Nodes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

async fn nodes(nodes: Option<&AsyncFd<Nodes>>) {
    let Some(nodes) = nodes else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = nodes.readable().await else { return std::future::pending().await };
        let heard = ready.get_inner().heard();
        ready.clear_ready();
        if heard {
            return;
        }
        // A storm of names that do not matter must not take all of the time.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
