//! `kae-operator driver`: what the pod of the driver runs on its node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::args::{FormatArguments, OutputFormat};
use crate::cli::{Failure, Outcome};
use crate::operator::driver::{self, EngineType, Node, Permissions, Programs, Request, Way};

/// What is to be done with the driver of this node.
#[derive(Debug, Subcommand)]
pub(super) enum Driver {
    /// Install the driver, or keep one that is good
    Install(Install),
    /// Say what keeps containers from the engines; changes nothing
    Check(Check),
    /// Unload the driver, and remove what was installed for it
    Remove(Common),
    /// Run on after an installation: keep permissions and the validation file right
    Hold(Hold),
    /// Succeed when the pod of the driver has done its work, for a readiness probe
    Ready(Common),
    /// Wait until the driver is ready
    Wait(Wait),
    /// Become a program of the node, in its root
    #[command(hide = true)]
    InRoot(InRoot),
}

#[derive(Debug, Args)]
pub(super) struct Common {
    /// The node's root [default: /host, or / where that is not there]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Types of engines: hpre, sec, zip
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "hpre")]
    types: Vec<EngineType>,
    /// Where validation files go [default: run/openfuyao/kae below the root]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// How programs of the node are run [default: chroot, or direct where the root is /]
    #[arg(long, value_enum)]
    programs: Option<WayArgument>,
}

#[derive(Debug, Args)]
struct Nodes {
    /// Permission bits of the engines' nodes
    #[arg(long, value_name = "OCTAL", default_value = "0666", value_parser = mode)]
    device_mode: u32,
    /// Group of the engines' nodes, as the node knows it
    #[arg(long, value_name = "NAME", value_parser = group)]
    device_group: Option<String>,
}

/// What modules are loaded with, and what is made of them.
#[derive(Debug, Args)]
struct Modules {
    /// How user space reaches the engines
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    uacce_mode: Mode,
    /// Queues that a physical function keeps [default: the driver's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pf_queues: Option<u32>,
    /// Virtual functions of every physical function, such as hpre=3,sec=1
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = functions)]
    vfs: Vec<(EngineType, u32)>,
}

#[derive(Debug, Args)]
pub(super) struct Install {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    modules: Modules,
    /// What to do where there is a driver: keep it, or remove and install [env: INSTALL_POLICY, KEYINSTALL_POLICY]
    #[arg(long, value_enum)]
    install_policy: Option<Policy>,
    /// Packages to install; where there are none, the kernel's own modules are loaded
    #[arg(long, value_name = "DIR", default_value = "/packages")]
    packages: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    common: Common,
    /// Permission bits that the engines' nodes must have [default: any]
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    device_mode: Option<u32>,
    /// Group that they must be of
    #[arg(long, value_name = "NAME", value_parser = group, requires = "device_mode")]
    device_group: Option<String>,
    #[command(flatten)]
    format: FormatArguments,
}

#[derive(Debug, Args)]
pub(super) struct Hold {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    nodes: Nodes,
    /// Taken so that both containers of a pod may have the same arguments; an installation follows them
    #[command(flatten)]
    _modules: Modules,
    /// The driver was removed: only stay
    #[arg(long)]
    removed: bool,
}

#[derive(Debug, Args)]
pub(super) struct Wait {
    #[command(flatten)]
    common: Common,
    /// An entry of an engine of these types is enough, whoever installed its driver
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    or_device: Vec<EngineType>,
}

#[derive(Debug, Args)]
pub(super) struct InRoot {
    #[arg(long, value_name = "DIR", required_unless_present = "mounts_of_node")]
    root: Option<PathBuf>,
    #[arg(long, conflicts_with = "root")]
    mounts_of_node: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WayArgument {
    /// Where they lie below the root, which stays this process's own
    Direct,
    /// With the root as their own
    Chroot,
    /// Among the mounts of the node's first process; needs hostPID
    Nsenter,
}

/// Spelled as in the `KAEPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Policy {
    /// Keep a driver that is there
    IfNotPresent,
    /// Remove it, then install
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// What an administrator chose, else nosva, else sva
    Auto,
    /// Shared virtual addresses
    Sva,
    /// Without
    Nosva,
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if (1..=0o777).contains(&mode) => Ok(mode),
        _ => Err("write permission bits as octal digits, such as 0666 or 0660".to_owned()),
    }
}

/// It stands between quotes in a rule of udev.
fn group(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a group: letters, digits, `_`, `-` and `.`".to_owned()),
    }
}

fn functions(text: &str) -> Result<(EngineType, u32), String> {
    let form = "write TYPE=NUMBER, such as hpre=3, at most 63";
    let (kind, count) = text.split_once('=').ok_or(form)?;
    let kind = kind.parse().map_err(|error: driver::ParseEngineTypeError| error.to_string())?;
    // `QM_MAX_VFS_NUM` of the drivers.
    let count = count.trim().parse().ok().filter(|count| *count <= 63).ok_or(form)?;
    Ok((kind, count))
}

impl Common {
    fn node(&self) -> Result<Node, Failure> {
        let root = match &self.root {
            Some(root) => root.as_path(),
            // Who waits for a driver has no more of the node than the directory of validation files.
            None => [Path::new("/host"), Path::new("/")]
                .into_iter()
                .find(|root| root.is_dir())
                .unwrap_or(Path::new("/")),
        };
        if !root.join("sys").is_dir() {
            let text = format!(
                "kae-operator: --root {} has no sys: mount the node's root there, with what is mounted in it",
                root.display()
            );
            return Err(Failure::Input(text));
        }
        let way = match self.programs {
            Some(WayArgument::Direct) => Way::Direct,
            Some(WayArgument::Chroot) => Way::Chroot,
            Some(WayArgument::Nsenter) => Way::Nsenter,
            None if root == Path::new("/") => Way::Direct,
            None => Way::Chroot,
        };
        Ok(Node::new(root, self.run_dir.as_deref(), Programs::new(root, way)))
    }
}

impl Nodes {
    fn permissions(&self) -> Permissions {
        Permissions { mode: self.device_mode, group: self.device_group.clone() }
    }
}

impl Install {
    fn request(&self) -> Result<Request, Failure> {
        let policy =
            match self.install_policy.map_or_else(policy_of_environment, |policy| Ok(Some(policy)))? {
                Some(Policy::Always) => driver::InstallPolicy::Always,
                Some(Policy::IfNotPresent) | None => driver::InstallPolicy::IfNotPresent,
            };
        Ok(Request {
            types: self.common.types.clone(),
            policy,
            packages: self.packages.clone(),
            uacce_mode: match self.modules.uacce_mode {
                Mode::Auto => driver::UacceMode::Auto,
                Mode::Sva => driver::UacceMode::Sva,
                Mode::Nosva => driver::UacceMode::NoSva,
            },
            pf_queues: self.modules.pf_queues,
            functions: self.modules.vfs.iter().copied().collect::<BTreeMap<_, _>>(),
            permissions: self.nodes.permissions(),
        })
    }
}

/// The second name is the one that the documentation of openFuyao prints.
fn policy_of_environment() -> Result<Option<Policy>, Failure> {
    for name in ["INSTALL_POLICY", "KEYINSTALL_POLICY"] {
        let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { continue };
        let value = value.to_string_lossy();
        return Policy::from_str(&value, false).map(Some).map_err(|_| {
            Failure::Input(format!("kae-operator: {name}={value} is no policy; write IfNotPresent or Always"))
        });
    }
    Ok(None)
}

pub(super) fn driver(command: &Driver) -> Outcome {
    match command {
        Driver::Install(arguments) => {
            let request = arguments.request()?;
            let node = arguments.common.node()?;
            // An error tells all of its causes itself.
            driver::install(&node, &request, &mut print)
                .map_err(|error| anyhow!("DriverInstallFailed: {error}").into())
        }
        Driver::Check(arguments) => check(arguments),
        Driver::Remove(common) => driver::remove(&common.node()?, &mut print)
            .map_err(|error| anyhow!("DriverRemoveFailed: {error}").into()),
        Driver::Hold(arguments) => {
            let node = arguments.common.node()?;
            until_stopped(async {
                match arguments.removed {
                    true => {
                        print("the driver is removed; nothing is left to do here");
                        std::future::pending::<()>().await;
                    }
                    false => {
                        let permissions = arguments.nodes.permissions();
                        driver::hold(&node, &arguments.common.types, &permissions, &mut print).await;
                    }
                }
            })
        }
        Driver::Ready(common) => Ok(driver::ready(&common.node()?)?),
        Driver::Wait(arguments) => {
            let node = arguments.common.node()?;
            until_stopped(driver::wait(&node, &arguments.or_device, &mut print))
        }
        Driver::InRoot(arguments) => {
            let error = driver::become_program(arguments.root.as_deref(), &arguments.command);
            let program = arguments.command.first().map(|program| program.to_string_lossy());
            Err(anyhow!("{}: {error}", program.unwrap_or_default()).into())
        }
    }
}

fn check(arguments: &Check) -> Outcome {
    let node = arguments.common.node()?;
    let wanted =
        arguments.device_mode.map(|mode| Permissions { mode, group: arguments.device_group.clone() });
    let checked =
        driver::check(&node, &arguments.common.types, wanted.as_ref()).map_err(|error| anyhow!("{error}"))?;
    let mut out = io::stdout().lock();
    match arguments.format.output {
        OutputFormat::Json => {
            let problems: Vec<_> = checked
                .problems
                .iter()
                .map(|problem| json!({"reason": problem.reason(), "message": problem.to_string()}))
                .collect();
            let entries: BTreeMap<_, _> =
                checked.entries.iter().map(|(kind, names)| (kind.as_str(), names)).collect();
            let report = json!({
                "usable": checked.problems.is_empty(),
                "kernel": node.kernel()?,
                "problems": problems,
                "notes": checked.notes,
                "entries": entries,
            });
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        }
        OutputFormat::Table => {
            for (kind, names) in &checked.entries {
                writeln!(out, "{kind}: {}", names.join(", "))?;
            }
            for problem in &checked.problems {
                writeln!(out, "wrong: {problem}")?;
            }
            for note in &checked.notes {
                writeln!(out, "note: {note}")?;
            }
        }
    }
    match checked.problems.len() {
        0 => Ok(()),
        1 => Err(anyhow!("the driver is not as it should be: 1 problem").into()),
        count => Err(anyhow!("the driver is not as it should be: {count} problems").into()),
    }
}

/// Says a line at once: somebody watches the pod's log while packages are installed.
fn print(line: &str) {
    // Where nobody listens any more, the work goes on.
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Runs something until it ends or this process is told to stop.
fn until_stopped(work: impl Future<Output = ()>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            () = work => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}
