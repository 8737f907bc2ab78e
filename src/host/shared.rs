//! Nodes that belong to no device.

use super::HostRoot;
use crate::handout::SharedNodes;

/// Which of the shared nodes exist. A node that does not exist on the host fails the whole container, so one counts only
/// when it is seen in `/dev`, or in sysfs where `/dev` does not show the host's.
pub fn shared_nodes(host: &HostRoot) -> SharedNodes {
    let seen = |node: &str, class: &str| {
        host.node(node).is_some() || (!host.shows_nodes_at(node) && host.list(class).is_ok())
    };
    SharedNodes {
        vhost_net: seen("/dev/vhost-net", "/sys/class/misc/vhost-net"),
        tun: seen("/dev/net/tun", "/sys/class/misc/tun"),
    }
}
