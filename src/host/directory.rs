//! An open directory of the host. What lies in it is read relative to it, so that the kernel walks the long path to a
//! function once and not for every attribute.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use rustix::fs::RawDir;

use super::HostRoot;

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A directory with the names in it, sorted. What is read from it later may be gone by then.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    host: &'a HostRoot,
    path: String,
    open: OwnedFd,
    entries: Vec<String>,
}

impl<'a> Directory<'a> {
    /// Opens and lists a directory.
    pub(super) fn open(host: &'a HostRoot, path: String) -> io::Result<Self> {
        let place = host.at(&path);
        let open = openat(AT_FDCWD, &place, DIRECTORY, Mode::empty())
            .map_err(|errno| host.recorded_error(&place).unwrap_or_else(|| errno.into()))?;
        let entries = names(&open)?;
        Ok(Self { host, path, open, entries })
    }

    pub(super) fn host(&self) -> &'a HostRoot {
        self.host
    }

    /// As on the host.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// As on the host.
    pub(super) fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    pub(super) fn entries(&self) -> &[String] {
        &self.entries
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.binary_search_by(|entry| entry.as_str().cmp(name)).is_ok()
    }

    /// The content of a file at or below this place, without white space at its end.
    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        self.host.count();
        let content = || -> io::Result<String> {
            let file = openat(&self.open, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
            read_page(&mut File::from(file))
        };
        let mut text = content().map_err(|error| self.recorded_error(name).unwrap_or(error))?;
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// The last component of what a link points to.
    pub(super) fn link_name(&self, name: &str) -> io::Result<String> {
        self.host.count();
        let target = readlinkat(&self.open, name)?;
        let target = target.into_string().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if let Some(error) = self.host.error_of_target(&target) {
            return Err(error);
        }
        Ok(target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The names in a directory below, sorted.
    pub(super) fn list(&self, name: &str) -> io::Result<Vec<String>> {
        self.host.count();
        let below = openat(&self.open, name, DIRECTORY, Mode::empty())
            .map_err(|errno| self.recorded_error(name).unwrap_or_else(|| errno.into()))?;
        names(&below)
    }

    fn recorded_error(&self, name: &str) -> Option<io::Error> {
        self.host.recorded_error(&self.host.place(&self.path_of(name)))
    }
}

/// The names in an open directory, sorted; one that is not UTF-8 is left out, for the kernel makes none.
///
/// `std` and `nix` go through the C library, which asks four more things of the kernel for each directory.
pub(super) fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(directory, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        names.extend(name.filter(|name| !matches!(*name, "." | "..")).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// An attribute of sysfs has at most one page and comes in one read.
pub(super) fn read_page(file: &mut File) -> io::Result<String> {
    let mut page = [0; 4096];
    let length = file.read(&mut page)?;
    let mut text = String::from_utf8_lossy(page.get(..length).unwrap_or_default()).into_owned();
    if length == page.len() {
        file.read_to_string(&mut text)?;
    }
    Ok(text)
}
