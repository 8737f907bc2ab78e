//! What can go wrong with the driver of a node.

use std::io;
use std::path::PathBuf;

use super::busy::Holder;
use super::check::Problem;
use super::programs::ProgramError;

/// Why the driver is not as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A file could not be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A program of the node.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// No engine of any enabled type.
    #[error(
        "this node has no engine of {types}; engines appear on the PCI bus with the licence for KAE, and in a virtual machine when functions are passed through"
    )]
    NoEngines {
        /// The enabled types.
        types: String,
    },
    /// Somebody uses the driver.
    #[error(
        "the driver is in use, so it was not {}: {}; drain the node of pods with openfuyao.com/kae.* resources, stop what else is named, and try again",
        what,
        list(holders)
    )]
    Busy {
        /// What was not done to it: `reinstalled`.
        what: &'static str,
        /// Who uses it.
        holders: Vec<Holder>,
    },
    /// The driver cannot be used as it is, and somebody uses it.
    #[error(
        "{why}; it cannot be reloaded while it is in use: {}; drain the node of pods with openfuyao.com/kae.* resources, stop what else is named, and try again",
        list(holders)
    )]
    UnusableAndBusy {
        /// Why it should be reloaded.
        why: String,
        /// Who uses it.
        holders: Vec<Holder>,
    },
    /// The kernel has no such module, and no packages bring it.
    #[error(
        "the kernel {kernel} has no module {module}, and {packages} holds no packages that bring it; put the KAE driver's packages for this kernel there, or install them on the node"
    )]
    NoModule {
        /// The kernel.
        kernel: String,
        /// The module.
        module: &'static str,
        /// Where packages were looked for.
        packages: String,
    },
    /// Packages could not be installed because of a repository.
    #[error(
        "the packages cannot be installed because of the repository {repository}: {source}; the node needs a repository of its own OS release with kernel-devel, online or from its ISO"
    )]
    Repository {
        /// Its name.
        repository: String,
        /// What the package manager said.
        source: ProgramError,
    },
    /// The package manager ended well and a package is not there.
    #[error("the package manager ended without an error, and the node has no {packages}")]
    NotInstalled {
        /// The packages.
        packages: String,
    },
    /// Modules are loaded and the engines are not usable.
    #[error("the driver was loaded, and cannot be used: {}", list(problems))]
    NotUsable {
        /// What is wrong.
        problems: Vec<Problem>,
    },
    /// A count of virtual functions that cannot be had.
    #[error(transparent)]
    Functions(#[from] FunctionsError),
    /// The group of the nodes.
    #[error("the node has no group {0} in /etc/group; make it, or leave --device-group out")]
    Group(String),
    /// A change failed, and what was before is back, or not.
    #[error("{source}; {restored}")]
    RolledBack {
        /// Why it failed.
        source: Box<DriverError>,
        /// What was restored.
        restored: String,
    },
}

/// Why virtual functions are not as many as asked for.
#[derive(Debug, thiserror::Error)]
pub enum FunctionsError {
    /// There are others.
    #[error(
        "{function} has {now} virtual functions and {wanted} were asked for: the kernel changes their number only by removing all of them, and they may be in use; drain the node, write 0 to its sriov_numvfs, and try again"
    )]
    Other {
        /// The physical function.
        function: String,
        /// How many there are.
        now: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// More than the hardware has.
    #[error("{function} has at most {most} virtual functions, and {wanted} were asked for")]
    TooMany {
        /// The physical function.
        function: String,
        /// `sriov_totalvfs`.
        most: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// The kernel refused.
    #[error(
        "{function}: the kernel does not change its virtual functions from {now} to {wanted}: {source}{}",
        explanation(source)
    )]
    Refused {
        /// The physical function.
        function: String,
        /// How many there are.
        now: u32,
        /// How many were asked for.
        wanted: u32,
        /// What the kernel said.
        source: io::Error,
    },
}

/// `hisi_qm` answers so (`hisi_qm_sriov_disable` in
/// <https://github.com/torvalds/linux/blob/master/drivers/crypto/hisilicon/qm.c>).
fn explanation(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ResourceBusy => " (a queue of one of them is in use)",
        io::ErrorKind::PermissionDenied => " (one of them is assigned to a virtual machine)",
        _ => "",
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}
