//! Opens whatever a user names as a host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{ParseRecordingError, Recording};
use crate::host::HostRoot;

/// A recording of a machine with thousands of functions has a few megabytes.
const SIZE_LIMIT: u64 = 64 << 20;

/// Why a path is no host.
#[derive(Debug, thiserror::Error)]
pub enum OpenHostError {
    /// It cannot be read.
    #[error("{}: {source}; name a directory that holds a machine's sys, or a file that `pcidp snapshot` wrote", path.display())]
    Read {
        /// As the user typed it.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A directory without a machine in it.
    #[error("{} holds no directory `sys`; name the directory that a machine's /sys lies in", path.display())]
    NoSys {
        /// As the user typed it.
        path: PathBuf,
    },
    /// Larger than any recording.
    #[error("{} has more than 64 MiB; a recorded host has a few at most", path.display())]
    Large {
        /// As the user typed it.
        path: PathBuf,
    },
    /// No recording.
    #[error("{}", source.with_prefix(&format!("{}:", path.display())))]
    Parse {
        /// As the user typed it.
        path: PathBuf,
        /// Every problem.
        source: ParseRecordingError,
    },
    /// It could not be laid out.
    #[error("{}: the recorded host could not be laid out: {source}; set TMPDIR to a directory with room", path.display())]
    LayOut {
        /// As the user typed it.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl HostRoot {
    /// `/` is this machine, another directory holds a machine's `sys`, and a file is a recorded host.
    ///
    /// # Errors
    /// Names the path, the lines and what to do.
    pub fn open(path: &Path) -> Result<Self, OpenHostError> {
        if path == Path::new("/") {
            return Ok(Self::live());
        }
        let unreadable = |source| OpenHostError::Read { path: path.to_owned(), source };
        if fs::metadata(path).map_err(unreadable)?.is_dir() {
            if !path.join("sys").is_dir() {
                return Err(OpenHostError::NoSys { path: path.to_owned() });
            }
            return Ok(Self::directory(path));
        }
        let recording = Recording::open(path)?;
        recording.lay_out().map_err(|source| OpenHostError::LayOut { path: path.to_owned(), source })
    }
}

impl Recording {
    /// Reads a recording from a file.
    ///
    /// # Errors
    /// Names the path, the lines and what to do.
    pub fn open(path: &Path) -> Result<Self, OpenHostError> {
        let unreadable = |source| OpenHostError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        let length = file.take(SIZE_LIMIT + 1).read_to_string(&mut text).map_err(unreadable)?;
        if length as u64 > SIZE_LIMIT {
            return Err(OpenHostError::Large { path: path.to_owned() });
        }
        Self::parse(&text).map_err(|source| OpenHostError::Parse { path: path.to_owned(), source })
    }
}
