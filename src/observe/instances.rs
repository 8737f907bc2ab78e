//! The sockets on which instances tell of themselves: `pcidp/status-<instance>.sock` in the kubelet's directory.
//!
//! That directory is the node's, so during an update two instances have one there. Each container asks its own: the kernel
//! tells a process of which process a socket is, as far as the two share a PID namespace (`SO_PEERCRED`, `unix(7)`), and a
//! container sees its own processes only.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use crate::kubelet::{self, Instance, LONGEST_PATH};

/// Below the kubelet's directory of sockets; its clean-up passes over folders.
const FOLDER: &str = "pcidp";

/// An instance that listens.
#[derive(Debug)]
pub struct Found {
    /// Its socket.
    pub path: PathBuf,
    /// A connection to it.
    pub stream: UnixStream,
    /// Its process, where that can be seen from here.
    pub process: Option<i32>,
    made: (i64, i64),
}

/// Where an instance listens.
pub fn socket_path(device_plugins: &Path, instance: &Instance) -> PathBuf {
    device_plugins.join(FOLDER).join(format!("status-{instance}.sock"))
}

fn sockets(device_plugins: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("status-").is_some_and(|rest| rest.ends_with(".sock"))
    };
    let entries = fs::read_dir(device_plugins.join(FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_one).collect()
}

/// Makes the folder, and removes the sockets of instances that have ended.
///
/// # Errors
/// When the folder cannot be made, or the path of a socket in it would be too long.
pub fn prepare(device_plugins: &Path, instance: &Instance) -> io::Result<PathBuf> {
    let path = socket_path(device_plugins, instance);
    if path.as_os_str().len() > LONGEST_PATH {
        let text = format!("its path would have more than {LONGEST_PATH} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, text));
    }
    fs::create_dir_all(device_plugins.join(FOLDER))?;
    for other in sockets(device_plugins) {
        if let Err(error) = kubelet::remove_stale(&other) {
            tracing::debug!(%error, "left where it is");
        }
    }
    Ok(path)
}

/// Every instance that listens, the newest first.
pub async fn all(device_plugins: &Path) -> Vec<Found> {
    let mut found = Vec::new();
    for path in sockets(device_plugins) {
        let (Ok(stream), Ok(metadata)) = (UnixStream::connect(&path).await, path.symlink_metadata()) else {
            continue;
        };
        let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|&process| process > 0);
        found.push(Found { path, stream, process, made: (metadata.mtime(), metadata.mtime_nsec()) });
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.made));
    found
}

/// Those of the container in which this process runs, and the others; the newest first. Where the container shares the node's
/// processes, its control group tells it apart; on a node, all that can be seen are one's own.
pub fn own(found: Vec<Found>) -> (Vec<Found>, Vec<Found>) {
    let group = |process: &str| fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let mine = group("self");
    let is_here = |found: &Found| {
        mine.is_some() && found.process.and_then(|process| group(&process.to_string())) == mine
    };
    let (seen, unseen): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|found| found.process.is_some());
    match seen.iter().any(is_here) {
        true => seen.into_iter().partition(is_here),
        false => (seen, unseen),
    }
}
