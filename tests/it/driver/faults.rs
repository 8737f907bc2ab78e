//! Every program fails once, fails for good, or the installer is killed while it runs.

use super::ALL;
use super::fake::Fake;

/// The same with another version supplied, which `Always` installs in the place of the one that is loaded.
fn about_to_change() -> Fake {
    let node = Fake::with_driver();
    node.supply("2.0.1-1", &ALL);
    node
}

const ALWAYS: [&str; 4] = ["--install-policy", "Always", "--uacce-mode", "nosva"];
/// The package manager's own books are the one thing that is not put back: the former version is nowhere to be had.
fn without_books(node: &Fake) -> std::collections::BTreeMap<String, String> {
    let mut state = node.state();
    state.remove("fake/packages");
    state
}

#[test]
fn a_program_that_fails_once_leaves_what_was_before_or_the_new_driver() {
    let node = about_to_change();
    node.install(&ALWAYS);
    let calls = node.calls();
    assert!(calls.len() > 10, "{calls:#?}");
    let mut messages = String::new();
    for (number, call) in calls.iter().enumerate() {
        let node = about_to_change();
        node.set("fake/fail", &format!("^{} ", number + 1));
        let before = without_books(&node);
        let output = node.run("install", &ALWAYS);
        let text = node.text(&output);
        if output.status.success() {
            // A question that fails is answered no, and udev reads its rules without being told.
            assert!(call.starts_with("rpm -q ") || call.starts_with("udevadm"), "{call}: {text}");
            assert!(node.run("check", &[]).status.success());
            continue;
        }
        messages += &format!("# {call}\n{}", text.split_once("--- stderr\n").unwrap().1);
        let now = without_books(&node);
        let differ: Vec<_> = now.iter().filter(|entry| before.get(entry.0) != Some(entry.1)).collect();
        assert_eq!(now, before, "{call}: {text}\n{differ:#?}");
        // And another try succeeds.
        node.delete("fake/fail");
        node.install(&ALWAYS);
        assert_eq!(node.read("fake/packages").trim(), "kae_driver kae_driver-2.0.1-1.aarch64");
    }
    insta::assert_snapshot!("driver_faults", messages);
}

#[test]
fn what_cannot_be_restored_is_reported_and_the_next_try_repairs_it() {
    let node = about_to_change();
    node.set("fake/fail", "modprobe");
    insta::assert_snapshot!("driver_not_restored", node.transcript("install", &ALWAYS));
    assert!(!node.has(super::READY), "nobody is told to use it");
    node.delete("fake/fail");
    node.install(&[]);
    assert!(node.run("check", &[]).status.success());
}

#[test]
fn a_new_driver_that_makes_no_entries_is_rolled_back() {
    let node = about_to_change();
    node.set("fake/no-probe", "");
    let text = node.transcript("install", &ALWAYS);
    assert!(text.contains("no hpre engine has an entry"), "{text}");
    assert!(text.contains("hisi_hpre uacce_mode=2 pf_q_num=256"), "{text}");

    let node = Fake::bare();
    node.supply("2.0.0-1", &ALL);
    let before = without_books(&node);
    node.set("fake/no-probe", "");
    insta::assert_snapshot!("driver_no_entries", node.transcript("install", &["--types", "hpre"]));
    let mut after = without_books(&node);
    after.remove("lib/modules/5.10.0-136.12.0.86.aarch64/modules.dep");
    assert_eq!(after, before);
    assert_eq!(node.read("fake/packages"), "", "what was installed for it is gone");
}

#[test]
fn a_node_that_does_not_appear_is_said_and_nobody_is_told_to_use_the_rest() {
    let node = Fake::bare();
    node.supply("2.0.0-1", &ALL);
    node.set("fake/no-nodes", "");
    insta::assert_snapshot!("driver_no_nodes", node.transcript("install", &["--types", "hpre"]));
    assert!(!node.has(super::READY));
}

#[test]
fn an_installer_that_is_killed_at_any_program_is_followed_by_one_that_succeeds() {
    let node = about_to_change();
    node.install(&ALWAYS);
    let calls = node.calls();
    for (number, call) in calls.iter().enumerate() {
        let node = about_to_change();
        node.set("fake/kill", &format!("^{} ", number + 1));
        let output = node.run("install", &ALWAYS);
        assert_eq!(output.status.code(), None, "{call}: {}", node.text(&output));
        node.delete("fake/kill");
        node.install(&ALWAYS);
        assert!(node.run("check", &[]).status.success(), "{call}");
        assert_eq!(node.read("fake/packages").trim(), "kae_driver kae_driver-2.0.1-1.aarch64");
    }
}

#[test]
fn a_removal_that_fails_at_any_program_is_finished_by_the_next() {
    let node = Fake::with_driver();
    assert!(node.run("remove", &[]).status.success());
    let calls = node.calls();
    let removed = node.state();
    for (number, call) in calls.iter().enumerate() {
        let node = Fake::with_driver();
        let before = node.state();
        node.set("fake/fail", &format!("^{} ", number + 1));
        let output = node.run("remove", &[]);
        if call.starts_with("rmmod") {
            assert!(!output.status.success());
            assert_eq!(node.state(), before, "{call}: {}", node.text(&output));
        }
        node.delete("fake/fail");
        let output = node.run("remove", &[]);
        assert!(output.status.success(), "{call}: {}", node.text(&output));
        // A question that fails is answered no: then the package is not known to be there.
        if !call.starts_with("rpm") {
            assert_eq!(node.state(), removed, "{call}");
        }
    }
}
