//! Lays a recording out into a private directory, so that the ordinary reader reads it.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Entry, RecordedNetlink, Recording};
use crate::host::HostRoot;

impl Recording {
    /// Makes a temporary directory with everything in it; it goes with the last clone of the result.
    ///
    /// A device node becomes a text file, for making a node takes privileges. A file that could not be read becomes a
    /// link through itself that carries the error's name: reading it fails, and [`HostRoot::read`] tells the recorded
    /// error.
    ///
    /// The directory lies in `$TMPDIR` where that is set, else in memory (`/dev/shm`) where that works, for a thousand
    /// small files take half a second on some disks.
    ///
    /// # Errors
    /// What the kernel said, with the path; or an interface that is named and not there.
    pub fn lay_out(&self) -> io::Result<HostRoot> {
        let netlink = RecordedNetlink::new(self)
            .map_err(|unknown| io::Error::new(io::ErrorKind::InvalidData, unknown))?;
        let memory = env::var_os("TMPDIR").is_none().then(|| PathBuf::from("/dev/shm"));
        let in_memory = memory.and_then(|memory| self.lay_out_in(&memory).ok());
        let directory = match in_memory {
            Some(directory) => directory,
            None => self.lay_out_in(&env::temp_dir())?,
        };
        Ok(HostRoot::laid_out(directory, Arc::new(netlink)))
    }

    fn lay_out_in(&self, place: &Path) -> io::Result<tempfile::TempDir> {
        let directory = tempfile::Builder::new().prefix("pcidp-host-").tempdir_in(place)?;
        let mut made = String::new();
        for (path, entry) in self.entries() {
            let at = |path: &str| directory.path().join(path.trim_start_matches('/'));
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let make = || {
                if above != made {
                    fs::create_dir_all(at(above))?;
                }
                let place = at(path);
                match entry {
                    Entry::File(content) => fs::write(place, content),
                    Entry::Link(target) => symlink(target, place),
                    Entry::Unreadable(errno) => symlink(format!("{name}/!{errno:?}"), place),
                    Entry::Node(node) => fs::write(place, format!("{} {:04o}\n", node.number, node.mode)),
                    Entry::Directory => fs::create_dir(place),
                }
            };
            make().map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
            above.clone_into(&mut made);
        }
        Ok(directory)
    }
}
