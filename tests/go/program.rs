//! Programs in Go, with the libraries of those who are on the other side. Included where they are used.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that was built from `tests/go`.
pub(crate) struct Program {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    /// Nothing, loudly, where there is no Go or the modules cannot be had.
    pub(crate) fn build(name: &str) -> Option<Self> {
        let skip = |reason: &str| {
            // Not `eprintln`, which the test harness keeps to itself.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: tests/go/{name} could NOT be built, so nothing was compared with the libraries of others: {reason}"
            );
            None
        };
        let directory = match tempfile::tempdir() {
            Ok(directory) => directory,
            Err(error) => return skip(&error.to_string()),
        };
        let path = directory.path().join(name);
        let output = Command::new("go")
            .args(["build", "-mod=readonly", "-o"])
            .arg(&path)
            .arg(format!("./{name}"))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go"))
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "")
            .output();
        match output {
            Err(error) => skip(&format!("go cannot be run: {error}")),
            Ok(output) if !output.status.success() => skip(String::from_utf8_lossy(&output.stderr).trim()),
            Ok(_) => Some(Self { _directory: directory, path }),
        }
    }

    pub(crate) fn command(&self) -> Command {
        Command::new(&self.path)
    }
}
