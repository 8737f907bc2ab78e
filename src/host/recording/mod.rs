//! A recorded host: one text file that is one machine.
//!
//! `testdata/hosts/README.md` tells the format. [`Recording`] is its value: it can be parsed, printed, laid out into a
//! private directory that the ordinary reader then reads ([`Recording::lay_out`]), taken from a machine
//! ([`record`]) and from an unpacked copy of a machine's `/sys` ([`from_unpacked`]).

mod answers;
mod convert;
#[cfg(test)]
mod corpus;
mod format;
pub mod generate;
mod identities;
mod layout;
mod netlink;
mod open;
mod parse;
mod rules;
mod snapshot;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::net::IpAddr;

pub use convert::{ConvertError, from_unpacked};
use netlink::Names;
pub use netlink::{RecordedNetlink, UnknownInterface};
pub use nix::errno::Errno;
pub use open::OpenHostError;
pub use parse::{ParseRecordingError, Problem};
pub use snapshot::{SnapshotOptions, record};

use super::netlink::{Family, TABLE_MAIN};
use super::root::DeviceNumber;

/// Longest name of a file; a limit of every Linux file system.
const NAME_LIMIT: usize = 255;
/// Longest path; leaves room for the directory that a recording is laid out in (`PATH_MAX` is 4096).
const PATH_LIMIT: usize = 2048;

/// One machine: a tree of files, and what a directory cannot hold.
///
/// The tree is always consistent: a path has no `..`, nothing lies below a file or a link, and no link leads out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    header: Vec<String>,
    entries: BTreeMap<String, Entry>,
    answers: Option<Answers>,
}

/// What lies at one path. Directories above an entry are implied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file and its content, to the letter.
    File(String),
    /// A symbolic link, relative as the kernel makes them.
    Link(String),
    /// A file that exists and could not be read.
    Unreadable(Errno),
    /// A device node.
    Node(Node),
    /// A directory with nothing in it.
    Directory,
}

/// A device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Kind and numbers.
    pub number: DeviceNumber,
    /// Permission bits.
    pub mode: u32,
}

/// Answers of the kernel's netlink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// Network interfaces, in the kernel's order.
    pub links: Vec<RecordedLink>,
    /// Default routes.
    pub routes: Vec<RecordedRoute>,
    /// What devlink said of a device.
    pub devlinks: Vec<RecordedDevlink>,
}

/// A network interface; other interfaces are named, for a person reads this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedLink {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Carrier, where the kernel tells it.
    pub carrier: Option<bool>,
    /// Alternative names.
    pub alternative_names: Vec<String>,
    /// Name of the master.
    pub master: Option<String>,
    /// Name of the interface below; a number where it has no name here.
    pub lower: Option<String>,
    /// Kind: `bond`, `vlan` …; empty for a plain interface.
    pub kind: String,
}

/// A default route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRoute {
    /// Address family.
    pub family: Family,
    /// Names of the interfaces that it leaves through.
    pub interfaces: Vec<String>,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// Routing table.
    pub table: u32,
    /// `rtm_protocol`.
    pub protocol: u8,
    /// Metric.
    pub metric: u32,
    /// Type: `unicast`, `blackhole`, `unreachable` …
    pub kind: String,
}

impl Default for RecordedRoute {
    /// What `ip route add default` makes.
    fn default() -> Self {
        Self {
            family: Family::Inet,
            interfaces: Vec::new(),
            gateway: None,
            table: TABLE_MAIN,
            protocol: 3,
            metric: 0,
            kind: "unicast".to_owned(),
        }
    }
}

/// What devlink said of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedDevlink {
    /// `BUS/DEVICE`, such as `pci/0000:03:00.0`.
    pub device: String,
    /// Mode of the eswitch: `legacy` or `switchdev`, or `EPERM` where it was not told.
    pub eswitch: Option<String>,
    /// The parameter `enable_rdma`.
    pub enable_rdma: Option<bool>,
    /// Keys and values of `devlink dev info`, such as `fw.app.name`.
    pub info: BTreeMap<String, String>,
}

/// Why something cannot be part of a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not an absolute, plain path.
    #[error("`{0}` is no plain absolute path; write it from / on, without `.`, `..` or empty parts")]
    Path(String),
    /// A name or a path that no file system takes.
    #[error(
        "a path of {0} bytes is too long; a name has at most {NAME_LIMIT} and a path at most {PATH_LIMIT}"
    )]
    Long(usize),
    /// The same path again.
    #[error("{0} is there already; write it once")]
    Twice(String),
    /// Something below a file or a link.
    #[error("{0} is no directory, so nothing can lie below it; write the entry at the real directory")]
    Below(String),
    /// A file or a link where a directory is.
    #[error("{0} is a directory already; leave this entry out, or what lies below")]
    Above(String),
    /// A link that leads out of the recorded host.
    #[error(
        "the link {path} leads to `{target}`; write a relative target with `..` only at its beginning that stays below /"
    )]
    Target {
        /// The link.
        path: String,
        /// Where it leads.
        target: String,
    },
}

impl Recording {
    /// A machine with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// The comment below the first line, one item a line.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// Sets the comment below the first line; a line break makes another line.
    pub fn set_header<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        let split = lines.into_iter().flat_map(|line| line.split(['\n', '\r']));
        self.header = split.map(|line| line.trim().to_owned()).collect();
    }

    /// All entries, sorted by path.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The entry at a path; `None` for a directory that other entries imply.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Where the tree would no longer be consistent, or would lead out of itself.
    pub fn insert(&mut self, path: &str, entry: Entry) -> Result<(), EntryError> {
        check_path(path)?;
        if self.entries.contains_key(path) {
            return Err(EntryError::Twice(path.to_owned()));
        }
        if let Entry::Link(target) = &entry {
            check_target(path, target)?;
        }
        for (end, _) in path.match_indices('/').skip(1) {
            let above = path.get(..end).unwrap_or_default();
            match self.entries.get(above) {
                None => {}
                Some(Entry::Directory) => {
                    self.entries.remove(above);
                }
                Some(_) => return Err(EntryError::Below(above.to_owned())),
            }
        }
        if self.has_below(path) {
            return match entry {
                Entry::Directory => Ok(()),
                _ => Err(EntryError::Above(path.to_owned())),
            };
        }
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Whether something lies below a path.
    pub fn has_below(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        let mut following = self.entries.range(prefix.clone()..);
        following.next().is_some_and(|(path, _)| path.starts_with(&prefix))
    }

    /// The answers of netlink; `None` where they are unknown.
    pub fn answers(&self) -> Option<&Answers> {
        self.answers.as_ref()
    }

    /// Sets the answers of netlink.
    pub fn set_answers(&mut self, answers: Option<Answers>) {
        self.answers = answers;
    }
}

fn check_path(path: &str) -> Result<(), EntryError> {
    let bad = || EntryError::Path(path.to_owned());
    if path.len() > PATH_LIMIT {
        return Err(EntryError::Long(path.len()));
    }
    for name in path.strip_prefix('/').ok_or_else(bad)?.split('/') {
        if matches!(name, "" | "." | "..") || name.contains('\0') {
            return Err(bad());
        }
        if name.len() > NAME_LIMIT {
            return Err(EntryError::Long(name.len()));
        }
    }
    Ok(())
}

/// A link may climb only with `..` at its beginning: its own directory is real, so these can be counted. A `..` after a
/// name could stand behind another link, and lead anywhere. The links of sysfs have exactly this form
/// (`sysfs_get_target_path`, now `kernfs_get_target_path`, in <https://github.com/torvalds/linux/blob/master/fs/kernfs/symlink.c>).
fn check_target(path: &str, target: &str) -> Result<(), EntryError> {
    let bad = || EntryError::Target { path: path.to_owned(), target: target.to_owned() };
    if target.len() > PATH_LIMIT || target.contains('\0') {
        return Err(bad());
    }
    let climbs = target.split('/').take_while(|&name| name == "..").count();
    let names_are_plain = target
        .split('/')
        .skip(climbs)
        .all(|name| !matches!(name, "" | "." | "..") && name.len() <= NAME_LIMIT);
    let depth = path.matches('/').count() - 1;
    if climbs > depth || !names_are_plain {
        return Err(bad());
    }
    Ok(())
}
