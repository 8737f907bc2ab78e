//! `ddptool`, which reads the DDP package of cards whose drivers do not tell it through devlink
//! (<https://github.com/intel/ddp-tool>).

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::model::PciAddress;

/// How long it may take; a card is asked in milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// The exit code of `ddptool` that says that no package is loaded.
const NO_PACKAGE: i32 = 8;

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "DDPInventory")]
    inventory: Inventory,
}

#[derive(Deserialize)]
struct Inventory {
    #[serde(rename = "DDPpackage")]
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

/// The place that a note names.
pub(super) fn place(address: PciAddress) -> String {
    format!("ddptool -l -a -j -s {address}")
}

/// The name of the loaded package; nothing where none is.
pub(super) fn profile(tool: &Path, address: PciAddress) -> io::Result<Option<String>> {
    let mut child = Command::new(tool)
        .args(["-l", "-a", "-j", "-s", &address.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if started.elapsed() < LIMIT => thread::sleep(PAUSE),
            None => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {LIMIT:?}")));
            }
        }
    };
    // Its report fits into the pipe, so that it can end before it is read.
    let mut text = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut text)?;
    }
    match status.code() {
        Some(0) => read(&text),
        Some(NO_PACKAGE) => Ok(None),
        _ => Err(io::Error::other(status.to_string())),
    }
}

fn read(text: &str) -> io::Result<Option<String>> {
    let report: Report = serde_json::from_str(text)?;
    let name = report.inventory.package.name;
    Ok((!name.is_empty()).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_package_is_read_from_the_report() {
        let report = |name: &str| {
            format!(
                r#"{{"DDPInventory": {{"device": "1572", "address": "0000:02:00.0", "name": "enp2s0f0",
                    "display": "X710", "DDPpackage": {{"track_id": "80000008", "version": "1.0.3.0", "name": "{name}"}}}}}}"#
            )
        };
        let name = "GTPv1-C/U IPv4/IPv6 payload";
        assert_eq!(read(&report(name)).unwrap().as_deref(), Some(name));
        assert_eq!(read(&report("")).unwrap(), None);
        assert!(read("no report").is_err());
    }
}
