//! The machine as a directory that one is handed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::stat::{major, minor};

use super::directory::{Directory, names, read_page};
use super::netlink::{KernelNetlink, Netlink, NoNetlink};

/// A host: a directory that holds its `/sys` and `/dev`, and what a directory cannot hold.
///
/// Paths are written as on the host (`/sys/class/net`). Cloning is cheap and shares the counter.
#[derive(Clone)]
pub struct HostRoot {
    root: PathBuf,
    netlink: Arc<dyn Netlink>,
    dev: DevView,
    calls: Arc<AtomicU64>,
    ddptool: Option<PathBuf>,
    /// Keeps a laid-out recording on disk for as long as somebody reads it.
    _laid_out: Option<Arc<tempfile::TempDir>>,
}

/// Major and minor number of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Character or block.
    pub kind: NodeKind,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
}

/// Kind of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// A character device.
    Char,
    /// A block device.
    Block,
}

impl HostRoot {
    /// This machine, with the kernel's netlink.
    pub fn live() -> Self {
        Self::new(PathBuf::from("/"), Arc::new(KernelNetlink)).with_ddptool("ddptool")
    }

    /// A directory that holds another machine's `/sys`: a mount of the host's root, or an unpacked tree.
    pub fn directory(root: impl Into<PathBuf>) -> Self {
        Self::new(root.into(), Arc::new(NoNetlink))
    }

    fn new(root: PathBuf, netlink: Arc<dyn Netlink>) -> Self {
        let dev = DevView::of_mounts(&root);
        Self { root, netlink, dev, calls: Arc::default(), ddptool: None, _laid_out: None }
    }

    /// A recording that was laid out in `directory`; it is removed with the last clone.
    pub(super) fn laid_out(directory: tempfile::TempDir, netlink: Arc<dyn Netlink>) -> Self {
        let root = directory.path().to_owned();
        let dev = if root.join("dev").is_dir() { DevView::Whole } else { DevView::Mounts(Vec::new()) };
        Self {
            root,
            netlink,
            dev,
            calls: Arc::default(),
            ddptool: None,
            _laid_out: Some(Arc::new(directory)),
        }
    }

    /// This, with a program that reads DDP packages; only this machine has one by itself.
    #[must_use]
    pub fn with_ddptool(mut self, program: impl Into<PathBuf>) -> Self {
        self.ddptool = Some(program.into());
        self
    }

    /// The program that reads DDP packages.
    pub(super) fn ddptool(&self) -> Option<&Path> {
        self.ddptool.as_deref()
    }

    /// Whether this is the machine itself, whose kernel tells of changes.
    pub fn is_live(&self) -> bool {
        self.root.as_os_str() == "/"
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// What a directory cannot hold.
    pub fn netlink(&self) -> &dyn Netlink {
        self.netlink.as_ref()
    }

    /// Whether this process would see a device node of the host at `path` if there were one.
    ///
    /// In a container, `/dev` is a private tmpfs, in a privileged one too. Only a devtmpfs shows what exists; elsewhere
    /// a missing node means nothing.
    pub fn shows_nodes_at(&self, path: &str) -> bool {
        match &self.dev {
            DevView::Whole => true,
            DevView::Mounts(mounts) => {
                let place = self.root.join(path.trim_start_matches('/'));
                let covering = mounts.iter().filter(|(at, _)| place.starts_with(at));
                // A later mount on the same place covers an earlier one, and `max_by_key` takes the last.
                covering.max_by_key(|(at, _)| at.as_os_str().len()).is_some_and(|&(_, devtmpfs)| devtmpfs)
            }
        }
    }

    /// How many files, links and directories were read, and nodes looked at, through this host.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.count();
        self.place(path)
    }

    pub(super) fn place(&self, path: &str) -> PathBuf {
        if self.is_live() { PathBuf::from(path) } else { self.root.join(path.trim_start_matches('/')) }
    }

    /// The content of a file without white space at its end.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut text = self.content(path)?;
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// The content of a file, to the letter.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn content(&self, path: &str) -> io::Result<String> {
        let place = self.at(path);
        File::open(&place)
            .and_then(|mut file| read_page(&mut file))
            .map_err(|error| self.recorded_error(&place).unwrap_or(error))
    }

    /// In a laid-out recording, a file that could not be read is a link through itself with the error's name.
    pub(super) fn recorded_error(&self, place: &Path) -> Option<io::Error> {
        self._laid_out.as_ref()?;
        self.error_of_target(fs::read_link(place).ok()?.to_str()?)
    }

    pub(super) fn error_of_target(&self, target: &str) -> Option<io::Error> {
        self._laid_out.as_ref()?;
        let (_, name) = target.rsplit_once("/!")?;
        let errno = (1..=133).find(|&errno| format!("{:?}", Errno::from_raw(errno)) == name)?;
        Some(io::Error::from_raw_os_error(errno))
    }

    /// Where a link points to.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn link(&self, path: &str) -> io::Result<String> {
        let target = fs::read_link(self.at(path))?;
        let target = target.into_os_string().into_string();
        let target = target.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        self.error_of_target(&target).map_or(Ok(target), Err)
    }

    /// The last component of what a link points to: the driver of `…/driver`, the group of `…/iommu_group`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn link_name(&self, path: &str) -> io::Result<String> {
        let target = self.link(path)?;
        Ok(target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The names in a directory, sorted; a name that is not UTF-8 is left out, for the kernel makes none.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn list(&self, path: &str) -> io::Result<Vec<String>> {
        names(File::open(self.at(path))?)
    }

    /// Opens a directory, to read what is in it.
    pub(super) fn enter(&self, path: &str) -> io::Result<Directory<'_>> {
        Directory::open(self, path.to_owned())
    }

    /// The number of a device node; `None` where there is none at this path.
    pub fn node(&self, path: &str) -> Option<DeviceNumber> {
        self.node_and_mode(path).map(|(number, _)| number)
    }

    /// The number and the permission bits of a device node.
    pub fn node_and_mode(&self, path: &str) -> Option<(DeviceNumber, u32)> {
        let place = self.at(path);
        let metadata = fs::metadata(&place).ok()?;
        let kind = match metadata.file_type() {
            kind if kind.is_char_device() => NodeKind::Char,
            kind if kind.is_block_device() => NodeKind::Block,
            // Making a node takes privileges, so a laid-out recording has a text file in its place.
            kind if kind.is_file() && self._laid_out.is_some() => {
                let text = fs::read_to_string(&place).ok()?;
                let mode = text.split_whitespace().nth(2)?;
                return Some((text.parse().ok()?, u32::from_str_radix(mode, 8).ok()?));
            }
            _ => return None,
        };
        let number = DeviceNumber { kind, major: major(metadata.rdev()), minor: minor(metadata.rdev()) };
        Some((number, metadata.mode() & 0o777))
    }
}

impl std::fmt::Debug for HostRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRoot").field("root", &self.root).finish_non_exhaustive()
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            NodeKind::Char => "char",
            NodeKind::Block => "block",
        };
        write!(f, "{kind} {}:{}", self.major, self.minor)
    }
}

/// Why a text is no device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a device node as char MAJOR:MINOR or block MAJOR:MINOR")]
pub struct ParseDeviceNumberError;

impl std::str::FromStr for DeviceNumber {
    type Err = ParseDeviceNumberError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_whitespace();
        let kind = match words.next() {
            Some("char") => NodeKind::Char,
            Some("block") => NodeKind::Block,
            _ => return Err(ParseDeviceNumberError),
        };
        let (major, minor) =
            words.next().and_then(|numbers| numbers.split_once(':')).ok_or(ParseDeviceNumberError)?;
        let number = |text: &str| text.parse().map_err(|_| ParseDeviceNumberError);
        Ok(Self { kind, major: number(major)?, minor: number(minor)? })
    }
}

/// What is known of the device nodes below a root.
#[derive(Clone)]
enum DevView {
    /// A recording holds them all.
    Whole,
    /// Mounts over the place, and whether each is a devtmpfs: statfs cannot tell it from a tmpfs, the mount table can.
    Mounts(Vec<(PathBuf, bool)>),
}

impl DevView {
    fn of_mounts(root: &Path) -> Self {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mount = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (at, kind) = (words.next()?, words.next()?);
            let near = Path::new(at).starts_with(root.join("dev")) || root.join("dev").starts_with(at);
            near.then(|| (PathBuf::from(at), kind == "devtmpfs"))
        };
        Self::Mounts(table.lines().filter_map(mount).collect())
    }
}
