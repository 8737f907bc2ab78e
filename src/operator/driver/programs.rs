//! Programs of the node: `modprobe`, `rmmod`, `dnf` and the like, run in its root.
//!
//! They belong to the node and are run there, for they know its kernel, its packages and its repositories. The image of the
//! driver has nothing but this program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use nix::sched::{CloneFlags, setns};

/// Where programs lie in a root, as `secure_path` of most distributions has it.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// The mounts of the node itself, for a pod with `hostPID`.
const MOUNTS_OF_NODE: &str = "/proc/1/ns/mnt";
/// Lines of what a program said that are repeated.
const LINES: usize = 6;

/// How a program comes into the node's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is started where it lies below the root, which stays this process's own.
    Direct,
    /// With the root as its own root.
    Chroot,
    /// Among the mounts of the node's first process.
    Nsenter,
}

/// The programs of a node.
#[derive(Debug, Clone)]
pub struct Programs {
    root: PathBuf,
    way: Way,
}

/// Why a program could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not there.
    #[error("the node has no {} in {PATH}; {remedy}", names.join(" or "))]
    Absent {
        /// Names that were looked for.
        names: Vec<&'static str>,
        /// What to do.
        remedy: &'static str,
    },
    /// It could not be started.
    #[error("`{command}` could not be started: {source}")]
    Start {
        /// As a person would type it.
        command: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// It failed.
    #[error("`{command}` failed ({status}){}", said(output))]
    Failed {
        /// As a person would type it.
        command: String,
        /// How it ended.
        status: String,
        /// What it said last.
        output: String,
    },
}

fn said(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

impl Programs {
    /// The programs below a root.
    pub fn new(root: &Path, way: Way) -> Self {
        Self { root: root.to_owned(), way }
    }

    /// Whether the node has a program. A link may be absolute and lead nowhere from here, so it is not followed.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<String> {
        let candidates = DIRECTORIES.iter().map(|directory| format!("{directory}/{name}"));
        candidates
            .into_iter()
            .find(|path| self.root.join(path.trim_start_matches('/')).symlink_metadata().is_ok())
    }

    /// Runs a program to its end and returns what it printed.
    ///
    /// # Errors
    /// Where it is not there, cannot be started, or fails; with what it said last.
    pub fn run(&self, name: &'static str, arguments: &[&str]) -> Result<String, ProgramError> {
        let Some(path) = self.find(name) else {
            return Err(ProgramError::Absent { names: vec![name], remedy: remedy(name) });
        };
        let shown = [&[name], arguments].concat().join(" ");
        let start = |source| ProgramError::Start { command: shown.clone(), source };
        let mut command = self.command(&path).map_err(start)?;
        command.args(arguments).env("PATH", PATH).env("LC_ALL", "C").stdin(Stdio::null());
        let output = command.output().map_err(start)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        // dnf says what is wrong in one stream, and why in the other.
        let all = [text(&output.stdout), text(&output.stderr)].concat();
        Err(ProgramError::Failed {
            command: shown,
            status: output.status.to_string(),
            output: last_lines(&all),
        })
    }

    fn command(&self, path: &str) -> io::Result<Command> {
        if self.way == Way::Direct {
            return Ok(Command::new(self.root.join(path.trim_start_matches('/'))));
        }
        let mut command = Command::new(env::current_exe()?);
        command.args(["driver", "in-root"]);
        match self.way {
            Way::Nsenter => command.arg("--mounts-of-node"),
            Way::Chroot | Way::Direct => command.arg("--root").arg(&self.root),
        };
        command.arg("--").arg(path);
        Ok(command)
    }
}

/// Becomes a program in another root. Only a process with one thread may change its mounts, so this is done by a new
/// process that does nothing else; the standard library cannot do it between fork and exec without unsafe code.
///
/// # Errors
/// What the kernel said; there is no return where it works.
pub fn become_program(root: Option<&Path>, command: &[OsString]) -> io::Error {
    let enter = || {
        match root {
            Some(root) => nix::unistd::chroot(root)?,
            None => setns(fs::File::open(MOUNTS_OF_NODE)?, CloneFlags::CLONE_NEWNS)?,
        }
        env::set_current_dir("/")
    };
    if let Err(error) = enter() {
        return error;
    }
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::from(io::ErrorKind::InvalidInput);
    };
    Command::new(program).args(arguments).exec()
}

fn remedy(name: &str) -> &'static str {
    match name {
        "modprobe" | "rmmod" | "depmod" => "install kmod there, and check that --root is the node's root",
        "rpm" | "dnf" | "yum" => {
            "packages can be installed on nodes with rpm and dnf or yum only; elsewhere install the driver yourself and leave --packages empty"
        }
        _ => "check that --root is the node's root",
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("; ")
}
