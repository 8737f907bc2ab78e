//! A cluster in a virtual machine of `tests/vm`. The machine's root is this computer's, so this program runs there as well.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::node::{INSIDE, Kit, root};

/// Exit codes of `tests/vm/run`.
const CANNOT_HAVE_ONE: i32 = 77;
/// In seconds: 140 were seen for both scenarios.
const LIMIT: u32 = 1400;
const MEGABYTES: u32 = 6144;

/// Runs scenarios in a machine, and gives what this program said there.
pub(crate) fn run(names: &[&str], kit: &Kit) -> Result<String, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster-in-vm");
    let (command, out) = (place.join("cmd"), place.join("out"));
    prepare(&command, names, kit).map_err(|error| format!("cannot prepare the machine: {error}"))?;
    let output = Command::new(root().join("tests/vm/run"))
        .args([&command, &out])
        .envs([
            ("VM_ROOT", "1".to_owned()),
            ("VM_MEMORY", MEGABYTES.to_string()),
            ("VM_LIMIT", LIMIT.to_string()),
        ])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("tests/vm/run: {error}"))?;
    let said = fs::read_to_string(out.join("stdout")).unwrap_or_default();
    let complaint = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(CANNOT_HAVE_ONE) => Err(complaint.lines().last().unwrap_or_default().to_owned()),
        _ if said.contains(DONE) => Ok(said),
        _ => Err(format!("the machine ended too early (see {}): {complaint}\n{said}", out.display())),
    }
}

/// The last word of the scenarios in the machine.
pub(crate) const DONE: &str = "all were tried";

fn prepare(command: &Path, names: &[&str], kit: &Kit) -> io::Result<()> {
    if command.exists() {
        fs::remove_dir_all(command)?;
    }
    fs::create_dir_all(command)?;
    // A tenth of the size: each page of it is a question to this computer.
    let strip =
        Command::new("strip").arg("-o").arg(command.join("scenarios")).arg(env::current_exe()?).status()?;
    if !strip.success() {
        return Err(io::Error::other("strip failed"));
    }
    let words = [&kit.programs, &kit.images, &kit.pcidp].map(|path| format!("'{}'", path.display()));
    let repository = root().display();
    let text = format!(
        "#!/bin/sh\nexport {INSIDE}=1\nexec sh /cmd/machine.sh '{repository}' /cmd/scenarios --inside {} {}\n",
        words.join(" "),
        names.join(" ")
    );
    fs::copy(root().join("tests/cluster/machine.sh"), command.join("machine.sh"))?;
    let run = command.join("run");
    fs::write(&run, text)?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755))
}
