//! Sockets of our own: their names, binding, and leaving others' alone.

use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::Mode;
use tokio::net::UnixListener;

use super::watch::SocketIdentity;
use crate::model::{ResourceName, stable_hash};

/// Most bytes of a socket's path: `sun_path` has 108, and the last is a zero (`unix(7)`).
pub const LONGEST_PATH: usize = 107;

pub(super) const SELINUX_HINT: &str = "; if the files' permissions allow it, SELinux is a likely cause: look for `avc: denied` in the node's audit log";

/// Why a socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{} belongs to a process that is listening on it", path.display())]
    Live {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket is in the way.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Even the shortest name does not fit.
    #[error("a socket in {} would have a path of more than {LONGEST_PATH} bytes", directory.display())]
    TooLong {
        /// The directory.
        directory: PathBuf,
    },
    /// The system says no.
    #[error("cannot listen on {}: {source}{}", path.display(), hint(source))]
    System {
        /// The socket.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => SELINUX_HINT,
        _ => "",
    }
}

/// Sets one instance of the plugin apart from another, so that both can serve during an update: eight hex digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance(String);

impl Instance {
    /// A random one. (A process id would not do: it is 1 in every pod.)
    pub fn random() -> Self {
        // The standard library seeds a hasher from the system's random source.
        let random = std::hash::RandomState::new().build_hasher().finish();
        Self(format!("{:08x}", random >> 32))
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which directory a socket lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `device-plugins`: the kubelet is told of it.
    DevicePlugins,
    /// `plugins_registry`: the kubelet finds it, and sends its percent-encoded path as `:authority`. That is only
    /// valid where the file name has an `@` in it: what is before counts as user information (RFC 3986, 3.2.1), in
    /// which percent-encoding is allowed, and the rest as the host.
    PluginsRegistry,
}

impl Place {
    fn separator(self) -> char {
        match self {
            Self::DevicePlugins => '-',
            Self::PluginsRegistry => '@',
        }
    }
}

/// The path of a resource's socket: `<prefix>_<name>-<instance>.sock`.
///
/// Where that is longer than [`LONGEST_PATH`], the end of `<prefix>_<name>` gives way to a hash of the whole.
///
/// # Errors
/// When the directory's own path leaves no room.
pub fn socket_path(
    directory: &Path,
    place: Place,
    resource: &ResourceName,
    instance: &Instance,
) -> Result<PathBuf, BindError> {
    let stem = stem(directory, resource)?;
    Ok(directory.join(format!("{stem}{}{}.sock", place.separator(), instance.0)))
}

/// Whether a file name is one that [`socket_path`] makes for the resource, of whatever instance.
pub fn is_sibling(directory: &Path, place: Place, resource: &ResourceName, file: &str) -> bool {
    let Ok(stem) = stem(directory, resource) else {
        return false;
    };
    let instance = file
        .strip_prefix(&stem)
        .and_then(|rest| rest.strip_prefix(place.separator()))
        .and_then(|rest| rest.strip_suffix(".sock"));
    instance.is_some_and(|text| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn stem(directory: &Path, resource: &ResourceName) -> Result<String, BindError> {
    let rest = "/".len() + "-01234567.sock".len();
    let room = LONGEST_PATH.saturating_sub(directory.as_os_str().len() + rest);
    let full = format!("{}_{}", resource.prefix(), resource.name());
    if full.len() <= room {
        return Ok(full);
    }
    let hash = format!("{:016x}", stable_hash(&full));
    match room.checked_sub(hash.len() + 1) {
        // A resource name is ASCII, so that every byte is a character.
        Some(head) => Ok(format!("{}-{hash}", full.get(..head).unwrap_or_default())),
        None => Err(BindError::TooLong { directory: directory.to_owned() }),
    }
}

/// A socket file of our own. Dropping it removes the file, unless another has taken its place.
#[derive(Debug)]
pub struct OwnSocket {
    path: PathBuf,
    identity: SocketIdentity,
    /// As long as the inode is open, its number is nobody else's.
    _pin: File,
}

impl OwnSocket {
    /// Listens at `path`. A stale socket is replaced, a live one never.
    ///
    /// # Errors
    /// [`BindError`] names the path and what is in the way.
    pub fn bind(path: &Path) -> Result<(Self, UnixListener), BindError> {
        let failed = |source| BindError::System { path: path.to_owned(), source };
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(failed)?;
        // Not by `OpenOptions::custom_flags`: it drops all bits of `O_ACCMODE`, and in musl, `O_PATH` is one of them
        // (<https://git.musl-libc.org/cgit/musl/tree/include/fcntl.h>).
        let pin = open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let pin = File::from(pin);
        let identity = pin.metadata().map_err(failed)?;
        let identity = SocketIdentity::from_metadata(&identity)
            .ok_or_else(|| failed(io::Error::other("another file took its place")))?;
        let own = Self { path: path.to_owned(), identity, _pin: pin };
        Ok((own, listener))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File name, as the kubelet is told.
    pub fn file_name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Whether the path still leads to this socket.
    pub fn is_in_place(&self) -> bool {
        SocketIdentity::of(&self.path).is_some_and(|found| found.is_same_file(&self.identity))
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove own socket");
        }
    }
}

/// Removes a socket on which nobody listens.
///
/// # Errors
/// When somebody does, when it is no socket, or when the system says no.
pub fn remove_stale(path: &Path) -> Result<(), BindError> {
    let before = SocketIdentity::of(path);
    match probe(path) {
        Ok(true) => {
            return Err(BindError::Live { path: path.to_owned() });
        }
        Ok(false) => {}
        Err(source) => {
            return Err(BindError::System { path: path.to_owned(), source });
        }
    }
    let Some(before) = before else {
        // Either it went away by itself, or it never was a socket.
        return match path.symlink_metadata() {
            Ok(_) => Err(BindError::NotASocket { path: path.to_owned() }),
            Err(_) => Ok(()),
        };
    };
    if SocketIdentity::of(path).is_some_and(|after| after.is_same_file(&before)) {
        std::fs::remove_file(path).map_err(|source| BindError::System { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// Whether somebody listens. Does not wait: a full backlog is an answer.
fn probe(path: &Path) -> io::Result<bool> {
    use nix::errno::Errno;
    use std::os::fd::AsRawFd;

    let client = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    match connect(client.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) | Err(Errno::EAGAIN) => Ok(true),
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as BlockingListener;

    use proptest::prelude::*;

    use super::*;

    fn resource() -> ResourceName {
        ResourceName::new("intel.com", "sriov_net").unwrap()
    }

    #[test]
    fn a_name_says_the_resource_and_the_instance() {
        let directory = Path::new("/var/lib/kubelet/device-plugins");
        let instance = Instance("0123abcd".to_owned());
        let path = socket_path(directory, Place::DevicePlugins, &resource(), &instance).unwrap();
        assert_eq!(path, directory.join("intel.com_sriov_net-0123abcd.sock"));
        let path = socket_path(directory, Place::PluginsRegistry, &resource(), &instance).unwrap();
        assert_eq!(path, directory.join("intel.com_sriov_net@0123abcd.sock"));
    }

    #[test]
    fn a_directory_that_leaves_no_room_is_named() {
        let directory = PathBuf::from(format!("/{}", "d".repeat(100)));
        let error =
            socket_path(&directory, Place::DevicePlugins, &resource(), &Instance::random()).unwrap_err();
        assert!(error.to_string().contains("ddd"), "{error}");
    }

    #[test]
    fn two_instances_have_two_names() {
        assert_ne!(Instance::random(), Instance::random());
    }

    proptest! {
        #[test]
        fn every_name_fits_and_is_known_as_its_own_resource(
            directory in "/[a-z]{1,30}(/[a-z]{1,20}){0,1}",
            prefix in "[a-z0-9]{1,60}\\.[a-z]{1,60}",
            name in "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        ) {
            let directory = Path::new(&directory);
            let resource = ResourceName::new(&prefix, &name).unwrap();
            for place in [Place::DevicePlugins, Place::PluginsRegistry] {
                let path = socket_path(directory, place, &resource, &Instance::random()).unwrap();
                prop_assert!(path.as_os_str().len() <= LONGEST_PATH);
                let file = path.file_name().unwrap().to_str().unwrap();
                prop_assert!(is_sibling(directory, place, &resource, file));
                let other = ResourceName::new(&prefix, &format!("{}x", name.get(..60).unwrap_or(&name))).unwrap();
                prop_assert!(!is_sibling(directory, place, &other, file) || other == resource);
                let again = socket_path(directory, place, &resource, &Instance::random()).unwrap();
                prop_assert_ne!(path, again);
            }
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        drop(BlockingListener::bind(&path).unwrap());
        let (own, _listener) = OwnSocket::bind(&path).unwrap();
        assert!(own.is_in_place());
    }

    #[tokio::test]
    async fn a_live_foreign_socket_is_never_unlinked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let foreign = BlockingListener::bind(&path).unwrap();
        let error = OwnSocket::bind(&path).unwrap_err();
        assert!(matches!(&error, BindError::Live { path: named } if *named == path), "{error}");
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        drop(foreign);
    }

    #[tokio::test]
    async fn a_live_socket_with_a_full_backlog_is_still_live() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let address = UnixAddr::new(&path).unwrap();
        let kind = (AddressFamily::Unix, SockType::Stream);
        let foreign = socket(kind.0, kind.1, SockFlag::empty(), None).unwrap();
        nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&foreign), &address).unwrap();
        nix::sys::socket::listen(&foreign, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert!(matches!(OwnSocket::bind(&path), Err(BindError::Live { .. })));
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(OwnSocket::bind(&path), Err(BindError::NotASocket { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[tokio::test]
    async fn only_the_own_inode_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let (own, _listener) = OwnSocket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!own.is_in_place());
        let _newcomer = BlockingListener::bind(&path).unwrap();
        assert!(!own.is_in_place());
        drop(own);
        assert!(path.exists());

        let path = directory.path().join("b.sock");
        let (own, _listener) = OwnSocket::bind(&path).unwrap();
        drop(own);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_error_names_the_path() {
        let path = Path::new("/nowhere/at/all/a.sock");
        let error = OwnSocket::bind(path).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all/a.sock"), "{error}");
    }

    #[test]
    fn a_denied_bind_names_selinux() {
        let error = BindError::System {
            path: "/x/a.sock".into(),
            source: io::Error::from_raw_os_error(nix::libc::EACCES),
        };
        assert!(error.to_string().contains("SELinux"), "{error}");
    }
}
