//! Other processes that serve the same resource: an older or a newer instance of the plugin, during an update.
//!
//! When a newer one registers and then dies, the kubelet counts the resource as unserved, though the older one's stream is
//! still open (seen with kubelet 1.34.4). So each watches the other, by a connection that says nothing: its end is that of
//! the process, also where it was killed and left its socket behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::socket::{Place, is_sibling};
use super::watch::Sockets;
use crate::model::ResourceName;

/// Waits until the process that listens on a socket has ended; false, at once, where nobody does.
pub async fn outlive(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket).await else { return false };
    let mut greeting = [0; 256];
    // A server of HTTP/2 says its settings, and then waits for ours.
    while stream.read(&mut greeting).await.is_ok_and(|length| length > 0) {}
    true
}

/// The sockets of others that serve a resource: those of instances of this plugin, and that of the Go plugin.
pub fn siblings(
    directory: &Path,
    sockets: &Sockets,
    resource: &ResourceName,
    own: &str,
) -> BTreeSet<PathBuf> {
    let of_go = format!("{}_{}.sock", resource.prefix(), resource.name());
    let is_one = |name: &&str| {
        *name != own && (*name == of_go || is_sibling(directory, Place::DevicePlugins, resource, name))
    };
    sockets.names().filter(is_one).map(|name| directory.join(name)).collect()
}
