//! What has to be there before a node can boot.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::node::{Kit, root};
use crate::outcome::{Failure, Outcome};

/// Installs, builds or finds everything; or says in one line why the suite cannot run here.
pub(crate) fn prepare() -> Outcome<Kit> {
    let unable = |why: &str| Err(Failure::Harness(why.to_owned()));
    if env::var_os("PCIDP_CLUSTER").is_none_or(|value| value != "1") {
        return unable("PCIDP_CLUSTER=1 is not set; it wants root");
    }
    if !nix::unistd::geteuid().is_root() {
        return unable("namespaces and device nodes take root");
    }
    let works = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !works("unshare", &["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "true"]) {
        return unable("this machine does not let root make namespaces");
    }
    if !works("go", &["version"]) {
        return unable("Go is missing (https://go.dev/dl)");
    }
    let script = |name| script(name, &[]).map_err(Failure::Harness);
    script("tests/cluster/packages.sh")?;
    let programs = script("tests/cluster/build.sh")?;
    let images = script("tests/cluster/images.sh")?;
    Ok(Kit { programs: programs.into(), images: images.into(), pcidp: image()? })
}

/// The archive of our own image: as it ships, built now, or the one that somebody has built already.
fn image() -> Outcome<PathBuf> {
    if let Some(archive) = env::var_os("PCIDP_CLUSTER_IMAGE") {
        return Ok(archive.into());
    }
    let arch = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let script = |name| script(name, &[arch]).map_err(Failure::Product);
    script("deployments/build-binaries")?;
    script("deployments/build-image")?;
    Ok(root().join(format!("dist/pcidp-{arch}.tar")))
}

/// The last line that a script of the repository prints.
fn script(name: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(root().join(name))
        .args(arguments)
        .output()
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    let last = |text: &[u8]| String::from_utf8_lossy(text).lines().last().unwrap_or_default().to_owned();
    match output.status.success() {
        true => Ok(last(&output.stdout)),
        false => Err(format!("{name} failed: {} {}", last(&output.stdout), last(&output.stderr))),
    }
}
