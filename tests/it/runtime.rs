//! What is mounted into a container, tried with a real runtime: runc.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use pcidp::daemon::UacceViews;
use serde_json::{Value, json};

/// A class that every kernel has and no namespace hides, in the place of `uacce`.
const CLASS: &str = "/sys/class/mem";

/// A test that cannot run says so past the harness, which swallows what a passing test prints.
fn skipped(reason: &str) {
    let line = format!("SKIPPED: the view of /sys/class/uacce was not tried with a runtime: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A bundle whose container runs a script on the host's programs, with one more mount.
fn bundle(directory: &Path, script: &str, more: Option<Value>) {
    let root = directory.join("rootfs");
    let bind = |path: &str| {
        json!({"destination": path, "source": fs::canonicalize(path).unwrap(), "type": "bind",
            "options": ["rbind", "ro"]})
    };
    let mut mounts: Vec<Value> = ["/bin", "/lib", "/lib64", "/usr"]
        .into_iter()
        .filter(|path| Path::new(path).exists())
        .map(|path| {
            fs::create_dir_all(root.join(path.trim_start_matches('/'))).unwrap();
            bind(path)
        })
        .collect();
    mounts.push(json!({"destination": "/proc", "source": "proc", "type": "proc"}));
    mounts.push(json!({"destination": "/sys", "source": "sysfs", "type": "sysfs",
        "options": ["nosuid", "noexec", "nodev", "ro"]}));
    mounts.push(json!({"destination": "/dev", "source": "tmpfs", "type": "tmpfs"}));
    mounts.extend(more);
    let config = json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs", "readonly": false},
        "process": {"cwd": "/", "user": {"uid": 0, "gid": 0}, "args": ["/bin/sh", "-c", script],
            "env": ["PATH=/bin:/usr/bin"]},
        "mounts": mounts,
        "linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}, {"type": "network"}, {"type": "ipc"}]},
    });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
}

/// Runs a bundle to its end; its output, or why it could not run.
fn run(directory: &Path) -> Result<String, String> {
    let name = format!("pcidp-test-{}-{}", std::process::id(), directory.file_name().unwrap().display());
    let output = Command::new("runc")
        .arg("--root")
        .arg(directory.join("state"))
        .args(["run", "--bundle"])
        .arg(directory)
        .arg(&name)
        .output()
        .map_err(|error| format!("there is no runc here: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

// KAE-05
#[test]
fn a_container_sees_only_the_entries_of_its_view_and_their_links_resolve() {
    let place = tempfile::tempdir().unwrap();
    let names = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    if names(CLASS).len() < 2 {
        return skipped("this kernel shows no /sys/class/mem");
    }
    let plain = place.path().join("plain");
    bundle(&plain, &format!("ls {CLASS}"), None);
    match run(&plain) {
        Err(reason) => return skipped(&reason),
        Ok(seen) => assert!(seen.lines().count() > 1, "{seen}"),
    }

    let views = UacceViews::new(place.path());
    let target = fs::read_link(format!("{CLASS}/null")).unwrap().display().to_string();
    let view = views.write(&["0000:79:00.1"], &BTreeMap::from([("null".to_owned(), target)])).unwrap();
    let mount =
        json!({"destination": CLASS, "source": view, "type": "bind", "options": ["rbind", "rprivate", "ro"]});
    let filtered = place.path().join("filtered");
    let script = format!(
        "ls {CLASS}; cat {CLASS}/null/dev; ls -d {CLASS}/null/subsystem/; touch {CLASS}/more 2>/dev/null && echo writable"
    );
    bundle(&filtered, &format!("{script}; true"), Some(mount));
    let seen = run(&filtered).unwrap_or_else(|error| panic!("{error}"));
    // What a link of the class leads to is the kernel's own, not the view's.
    assert_eq!(seen, format!("null\n1:3\n{CLASS}/null/subsystem/\n"));
}

// KAE-05
#[test]
fn a_view_that_changes_while_a_container_runs_is_what_it_sees() {
    let place = tempfile::tempdir().unwrap();
    let views = UacceViews::new(place.path());
    let target = |name: &str| Some(fs::read_link(format!("{CLASS}/{name}")).ok()?.display().to_string());
    let (Some(null), Some(zero)) = (target("null"), target("zero")) else {
        return skipped("this kernel shows no /sys/class/mem");
    };
    let ids = ["0000:79:00.1"];
    let view = views.write(&ids, &BTreeMap::from([("null".to_owned(), null)])).unwrap();
    let mount = json!({"destination": CLASS, "source": &view, "type": "bind", "options": ["rbind", "rprivate", "ro"]});
    let signal = place.path().join("signal");
    fs::create_dir(&signal).unwrap();
    let directory = place.path().join("bundle");
    // The container waits on a pipe, so that nobody has to guess when it has started.
    let fifo = signal.join("go");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    bundle(
        &directory,
        &format!("ls {CLASS}; cat /tmp/go >/dev/null; ls {CLASS}; cat {CLASS}/zero/dev"),
        Some(mount),
    );
    let path = directory.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let shared = json!({"destination": "/tmp", "source": &signal, "type": "bind", "options": ["rbind"]});
    config["mounts"].as_array_mut().unwrap().push(shared);
    fs::write(&path, config.to_string()).unwrap();

    // Opening the pipe waits for the container, so that must be known to start at all.
    let plain = place.path().join("plain");
    bundle(&plain, "true", None);
    if let Err(reason) = run(&plain) {
        return skipped(&reason);
    }
    std::thread::scope(|scope| {
        let container = scope.spawn(|| run(&directory));
        let writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        views.write(&ids, &BTreeMap::from([("zero".to_owned(), zero)])).unwrap();
        drop(writer);
        let seen = container.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(seen, "null\nzero\n1:5\n");
    });
}
