//! What runs on: the holder, the probe and whoever waits; and programs in a real other root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::READY;
use super::fake::Fake;

#[test]
fn the_holder_keeps_permissions_and_the_validation_file_true_and_ends_when_told() {
    let node = Fake::with_driver();
    let before = node.state();
    let mut holder = node.start("hold", &[]);
    assert_eq!(holder.line(), "ready");

    // A node that is made anew, as after a reload: the kernel makes it for root alone.
    fs::rename(node.at("dev/hisi_sec2-3"), node.at("aside")).unwrap();
    assert_eq!(holder.line(), "not ready: /dev/hisi_sec2-3 is not there");
    assert!(!node.has(READY));
    fs::set_permissions(node.at("aside"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(node.at("aside"), node.at("dev/hisi_sec2-3")).unwrap();
    assert_eq!(holder.line(), "set the permissions of /dev/hisi_sec2-3");
    assert_eq!(holder.line(), "ready");
    assert!(node.run("ready", &[]).status.success());
    assert_eq!(node.mode("dev/hisi_sec2-3"), 0o666);

    let (rest, code) = holder.terminate();
    assert_eq!((rest.as_str(), code), ("", Some(0)));
    assert_eq!(node.state(), before, "the driver is left alone");
    assert_eq!(node.calls(), [""; 0]);
}

#[test]
fn the_holder_writes_a_validation_file_that_somebody_removed() {
    let node = Fake::with_driver();
    let mut holder = node.start("hold", &[]);
    assert_eq!(holder.line(), "ready");
    node.delete(READY);
    let waiting = node.run("wait", &[]);
    assert!(waiting.status.success(), "{}", node.text(&waiting));
    assert!(node.has(READY));
}

#[test]
fn a_holder_of_a_removed_driver_is_ready_and_only_stays() {
    let node = Fake::with_driver();
    assert!(node.run("remove", &[]).status.success());
    let mut holder = node.start("hold", &["--removed"]);
    assert_eq!(holder.line(), "the driver is removed; nothing is left to do here");
    assert!(node.run("ready", &[]).status.success());
    let before = node.state();
    let (rest, code) = holder.terminate();
    assert_eq!((rest.as_str(), code), ("", Some(0)));
    assert_eq!(node.state(), before);
}

#[test]
fn a_validation_file_of_another_boot_or_kernel_is_stale() {
    let node = Fake::with_driver();
    insta::assert_snapshot!("driver_probe_ready", node.transcript("ready", &[]));
    node.set("proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555");
    insta::assert_snapshot!("driver_probe_stale", node.transcript("ready", &[]));
    node.set(READY, "yes\n");
    insta::assert_snapshot!("driver_probe_unknown", node.transcript("ready", &[]));
    node.delete(READY);
    insta::assert_snapshot!("driver_probe_absent", node.transcript("ready", &[]));
    node.set("run/openfuyao/kae/driver-removed", "11111111-2222-3333-4444-555555555555\n");
    assert!(!node.run("ready", &[]).status.success(), "removed, but before this boot");
}

#[test]
fn who_waits_says_so_once_and_goes_on_when_the_driver_is_ready() {
    let node = Fake::bare();
    node.supply("2.0.0-1", &super::ALL);
    let mut waiting = node.start("wait", &[]);
    let root = node.root().display().to_string();
    assert_eq!(waiting.line(), format!("waiting for {root}/run/openfuyao/kae/driver-ready"));
    node.install(&["--uacce-mode", "nosva"]);
    let (rest, code) = waiting.end();
    let expected = "the driver is ready: hisi_hpre-0, hisi_hpre-1, hisi_sec2-2, hisi_sec2-3\n";
    assert_eq!((rest.as_str(), code), (expected, Some(0)));
}

#[test]
fn who_waits_for_a_device_goes_on_with_the_first_of_its_type() {
    let node = Fake::bare().with_modules_of_the_kernel();
    let mut waiting = node.start("wait", &["--or-device", "hpre,zip"]);
    assert!(waiting.line().ends_with("driver-ready, or for hisi_hpre-* or hisi_zip-* in /sys/class/uacce"));
    // Not one of them.
    node.modprobe(&["hisi_sec2", "uacce_mode=1"]);
    node.modprobe(&["hisi_zip", "uacce_mode=1"]);
    let (rest, code) = waiting.end();
    assert_eq!((rest.as_str(), code), ("an engine is there: hisi_zip-2\n", Some(0)));

    let node = Fake::bare();
    let mut waiting = node.start("wait", &[]);
    waiting.line();
    let (rest, code) = waiting.terminate();
    assert_eq!((rest.as_str(), code), ("", Some(0)), "an init container is stopped, too");
}

#[test]
fn programs_run_in_the_nodes_own_root() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    // A shell with the libraries that it needs is enough of a root.
    let libraries = Command::new("ldd").arg("/bin/sh").output().unwrap();
    let text = String::from_utf8(libraries.stdout).unwrap();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/sh"]);
    for path in paths {
        let place = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(path, place).unwrap();
    }
    fs::write(root.path().join("mark"), "of the node").unwrap();
    let in_root = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kae-operator"));
        command.args(["driver", "in-root", "--root"]).arg(root.path()).arg("--").args(arguments);
        command.output().unwrap()
    };
    let output = in_root(&["/bin/sh", "-c", "read line </mark; echo $line in $PWD; exit 3"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "of the node in /\n");
    assert_eq!(output.status.code(), Some(3), "its end is that of the program");
    let output = in_root(&["/usr/sbin/modprobe"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("No such file"), "{said}");
}
