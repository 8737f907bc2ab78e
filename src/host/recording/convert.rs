//! Takes a recording from an unpacked copy of a machine's `/sys`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::rules::{Place, Take, is_wanted_node, take};
use super::snapshot::LEFT_OUT;
use super::words::{read_errno, read_node};
use super::{Answers, Entry, Names, Node, RecordedLink, Recording, SnapshotOptions, record};
use crate::host::HostRoot;

/// `IFF_UP` (<https://github.com/torvalds/linux/blob/master/include/uapi/linux/if.h>).
const INTERFACE_IS_UP: u32 = 1;

/// Why an unpacked tree is no host.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// It has no `sys`.
    #[error("{} holds no directory `sys`; unpack a machine's /sys there", .0.display())]
    NoSys(PathBuf),
    /// A side file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The side file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A side file has a line of another form.
    #[error("{}:{line}: write {form}", path.display())]
    Line {
        /// The side file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What to write.
        form: &'static str,
    },
}

/// Reads `directory/sys`, and beside it what a copy cannot hold, one item a line, each file optional:
///
/// | file | line |
/// |---|---|
/// | `DEV-NODES` | `c 0600 243:0 /dev/vfio/20`: kind (`c`, `b`; `d` is passed over), mode, numbers, path |
/// | `nodes` | `/dev/vfio/20 243 0`: path, major, minor of a character device; the mode is taken as 0600 |
/// | `READ-ERRORS` | `/sys/… ERRNO`: a file that could not be read when the copy was made |
/// | `netdevs` | the name of an interface; its index and flags are those of its files, and there is no default route |
///
/// # Errors
/// Names the side file, the line and what to write.
pub fn from_unpacked(directory: &Path, options: SnapshotOptions) -> Result<Recording, ConvertError> {
    if !directory.join("sys").is_dir() {
        return Err(ConvertError::NoSys(directory.to_owned()));
    }
    let mut recording = record(&HostRoot::directory(directory), options);
    let mut saw_dev = false;
    for (file, read) in [("DEV-NODES", dev_node as ReadNode), ("nodes", node)] {
        saw_dev |= each_line(directory, file, |line| {
            let (path, node) = match read(line)? {
                Some(found) => found,
                None => return Some(()),
            };
            if is_wanted_node(path) {
                insert(&mut recording, path, Entry::Node(node));
            }
            Some(())
        })?;
    }
    if saw_dev {
        insert(&mut recording, "/dev", Entry::Directory);
    }
    each_line(directory, "READ-ERRORS", |line| {
        let (path, errno) = line.rsplit_once(char::is_whitespace)?;
        let errno = read_errno(errno).ok()?;
        let (above, name) = path.trim_end().rsplit_once('/')?;
        // The copy has the directory; of its files only those that a snapshot takes matter.
        let matters = take(place_of(above), name, options.identities) == Take::File;
        if matters && recording.has_below(above) {
            insert(&mut recording, path.trim_end(), Entry::Unreadable(errno));
        }
        Some(())
    })?;
    let mut answers = Answers::default();
    let saw_netdevs = each_line(directory, "netdevs", |name| {
        answers.links.extend(link_from_files(&recording, name));
        Some(())
    })?;
    if saw_netdevs {
        answers.links.sort_by_key(|link| link.index);
        recording.set_answers(Some(answers));
    }
    // That the copy has no `/dev` and no netlink is plain; what had to be left out of it is not.
    let notes = std::mem::take(&mut recording.header);
    let is_news = |note: &&str| note.starts_with(LEFT_OUT);
    recording.set_header(notes.iter().map(String::as_str).filter(is_news));
    Ok(recording)
}

/// What kind of directory this is, by its place in sysfs.
fn place_of(directory: &str) -> Place {
    let mut names = directory.rsplit('/');
    match (names.next(), names.next()) {
        (_, Some("net")) => Place::Net,
        (_, Some("uacce")) | (Some("attrs"), _) => Place::Uacce,
        _ => Place::Device,
    }
}

/// Two side files may name the same thing; the first counts.
fn insert(recording: &mut Recording, path: &str, entry: Entry) {
    let _ = recording.insert(path, entry);
}

type ReadNode = fn(&str) -> Option<Option<(&str, Node)>>;

fn dev_node(line: &str) -> Option<Option<(&str, Node)>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (kind, mode, numbers, path) = match *words.as_slice() {
        ["c", mode, numbers, path] => ("char", mode, numbers, path),
        ["b", mode, numbers, path] => ("block", mode, numbers, path),
        ["d", ..] => return Some(None),
        _ => return None,
    };
    Some(Some((path, read_node(&format!("{kind} {numbers} {mode}")).ok()?)))
}

fn node(line: &str) -> Option<Option<(&str, Node)>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [path, major, minor] = *words.as_slice() else {
        return None;
    };
    Some(Some((path, read_node(&format!("char {major}:{minor} 0600")).ok()?)))
}

fn link_from_files(recording: &Recording, name: &str) -> Option<RecordedLink> {
    let mut link = RecordedLink {
        index: Names::new(recording, &[]).index(name).ok()?,
        name: name.to_owned(),
        ..RecordedLink::default()
    };
    let end = |file: &str| format!("/net/{name}/{file}");
    for (path, entry) in recording.entries() {
        let Entry::File(content) = entry else { continue };
        let content = content.trim();
        if path.ends_with(&end("flags")) {
            let flags = u32::from_str_radix(content.trim_start_matches("0x"), 16);
            link.up = flags.is_ok_and(|flags| flags & INTERFACE_IS_UP != 0);
        } else if path.ends_with(&end("carrier")) {
            link.carrier = Some(content == "1");
        }
    }
    Some(link)
}

/// Reads a side file; false where there is none.
fn each_line(
    directory: &Path,
    file: &str,
    mut read: impl FnMut(&str) -> Option<()>,
) -> Result<bool, ConvertError> {
    let path = directory.join(file);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(ConvertError::Read { path, source }),
    };
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        if read(line.trim()).is_none() {
            let form = match file {
                "DEV-NODES" => "`c 0600 243:0 /dev/vfio/20`: kind, mode, numbers and path",
                "nodes" => "`/dev/vfio/20 243 0`: path, major and minor",
                _ => "a path and the name of an error, such as EINVAL",
            };
            let line = index + 1;
            return Err(ConvertError::Line { path, line, form });
        }
    }
    Ok(true)
}
