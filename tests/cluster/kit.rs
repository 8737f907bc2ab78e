//! What has to be there before a node can boot.

use std::env;
use std::process::{Command, Stdio};

use crate::node::{Kit, folder};

/// Installs, builds or finds everything; or says in one line why the suite cannot run here.
pub(crate) fn prepare() -> Result<Kit, String> {
    if env::var_os("PCIDP_CLUSTER").is_none_or(|value| value != "1") {
        return Err("set PCIDP_CLUSTER=1 and run as root".to_owned());
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("namespaces and device nodes take root".to_owned());
    }
    let works = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !works("unshare", &["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "true"]) {
        return Err("this machine does not let root make namespaces".to_owned());
    }
    if !works("go", &["version"]) {
        return Err("Go is missing (https://go.dev/dl)".to_owned());
    }
    script("packages.sh", &[])?;
    let programs = script("build.sh", &[])?;
    let images = script("images.sh", &[env!("CARGO_BIN_EXE_pcidp")])?;
    Ok(Kit { programs: programs.into(), images: images.into() })
}

/// The last line that a script of the suite prints.
fn script(name: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("sh")
        .arg(folder().join(name))
        .args(arguments)
        .output()
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    let last = |text: &[u8]| String::from_utf8_lossy(text).lines().last().unwrap_or_default().to_owned();
    match output.status.success() {
        true => Ok(last(&output.stdout)),
        false => Err(format!("{name} failed: {} {}", last(&output.stdout), last(&output.stderr))),
    }
}
