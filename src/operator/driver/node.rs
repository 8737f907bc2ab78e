//! The node: a directory that is its root, and where the driver keeps its files there.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::DriverError;
use super::programs::Programs;
use crate::host::HostRoot;

/// Options of the modules. Files of `modprobe.d` are read in the order of their names and the kernel takes the last value,
/// so this one outdoes `hisi_hpre.conf` and the like, which the KAE packages bring.
pub const OPTIONS_FILE: &str = "/etc/modprobe.d/openfuyao-kae.conf";
/// Permissions of the nodes.
pub const RULES_FILE: &str = "/etc/udev/rules.d/60-openfuyao-kae.rules";
/// What was installed; it survives a reboot.
pub const RECORD_FILE: &str = "/etc/openfuyao/kae/driver.json";
/// Validation files, unless told otherwise. `/run` is empty after a reboot.
pub const RUN_DIRECTORY: &str = "/run/openfuyao/kae";
/// Where packages lie while the node's own package manager installs them.
pub(super) const PACKAGES_DIRECTORY: &str = "/run/openfuyao/kae/packages";

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    host: HostRoot,
    run_directory: PathBuf,
    programs: Programs,
}

impl Node {
    /// The node whose root is this directory. Its kernel's netlink is not asked.
    pub fn new(root: &Path, run_directory: Option<&Path>, programs: Programs) -> Self {
        let run_directory = match run_directory {
            Some(directory) => directory.to_owned(),
            None => below(root, RUN_DIRECTORY),
        };
        Self { host: HostRoot::directory(root), run_directory, programs }
    }

    /// The reader of its `/sys`.
    pub fn host(&self) -> &HostRoot {
        &self.host
    }

    /// Its programs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The directory of validation files.
    pub fn run_directory(&self) -> &Path {
        &self.run_directory
    }

    /// Where a path of the node lies for this process.
    pub fn place(&self, path: &str) -> PathBuf {
        below(self.host.path(), path)
    }

    /// The version of the kernel that runs.
    ///
    /// # Errors
    /// Where no `/proc` tells it.
    pub fn kernel(&self) -> Result<String, DriverError> {
        self.of_kernel("/proc/sys/kernel/osrelease")
    }

    /// The id of this boot.
    ///
    /// # Errors
    /// Where no `/proc` tells it.
    pub fn boot(&self) -> Result<String, DriverError> {
        self.of_kernel("/proc/sys/kernel/random/boot_id")
    }

    /// A container has the node's kernel, so that its own `/proc` tells the same where the root has none.
    fn of_kernel(&self, path: &str) -> Result<String, DriverError> {
        let own = || fs::read_to_string(path).map(|text| text.trim().to_owned());
        self.host
            .read(path)
            .or_else(|_| own())
            .map_err(|source| DriverError::Read { path: path.into(), source })
    }

    /// A file of the node, `None` where there is none.
    ///
    /// # Errors
    /// What the kernel said, with the path.
    pub fn file(&self, path: &str) -> Result<Option<String>, DriverError> {
        read(&self.place(path))
    }

    /// Puts a file in place, whole or not at all.
    ///
    /// # Errors
    /// What the kernel said, with the path.
    pub fn write(&self, path: &str, content: &str) -> Result<(), DriverError> {
        write(&self.place(path), content)
    }

    /// Removes a file; says whether it was there.
    ///
    /// # Errors
    /// What the kernel said, with the path.
    pub fn remove(&self, path: &str) -> Result<bool, DriverError> {
        remove(&self.place(path))
    }

    /// Keeps others of this program from changing the driver at the same time; waits for one that does.
    ///
    /// # Errors
    /// What the kernel said, with the path.
    pub fn lock(&self) -> Result<fs::File, DriverError> {
        self.lock_with(|file| file.lock().map(|()| true)).map(|(file, _)| file)
    }

    /// The same; `None` where another one changes the driver just now.
    ///
    /// # Errors
    /// What the kernel said, with the path.
    pub fn try_lock(&self) -> Result<Option<fs::File>, DriverError> {
        let (file, is_ours) = self.lock_with(|file| match file.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        })?;
        Ok(is_ours.then_some(file))
    }

    fn lock_with(
        &self,
        lock: impl FnOnce(&fs::File) -> io::Result<bool>,
    ) -> Result<(fs::File, bool), DriverError> {
        let path = self.run_directory.join("lock");
        let locked = || {
            fs::create_dir_all(&self.run_directory)?;
            let file = fs::File::create(&path)?;
            let is_ours = lock(&file)?;
            Ok((file, is_ours))
        };
        locked().map_err(|source| DriverError::Write { path: path.clone(), source })
    }
}

/// A path of the node below a directory.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// A file; `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, DriverError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DriverError::Read { path: path.to_owned(), source }),
    }
}

/// Puts a file in place by a rename, so that nobody reads half of it.
pub(super) fn write(path: &Path, content: &str) -> Result<(), DriverError> {
    let written = || {
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let mut file = tempfile::Builder::new().prefix(".kae-").tempfile_in(directory)?;
        file.write_all(content.as_bytes())?;
        // Others read it: udev, the plugin. A temporary file is for its owner alone.
        fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|source| DriverError::Write { path: path.to_owned(), source })
}

/// Removes a file; says whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool, DriverError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(DriverError::Write { path: path.to_owned(), source }),
    }
}
