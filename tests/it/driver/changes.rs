//! Virtual functions, removal, and changes one after the other.

use proptest::prelude::*;

use super::fake::{Fake, KERNEL};
use super::{ALL, READY};

#[test]
fn virtual_functions_are_made_where_there_are_none_and_never_changed() {
    let node = Fake::with_driver();
    insta::assert_snapshot!("driver_vfs_made", node.transcript("install", &["--vfs", "hpre=3,sec=0"]));
    let count = || node.read("sys/bus/pci/devices/0000:79:00.0/sriov_numvfs");
    assert_eq!(count(), "3");
    let before = node.state();
    node.install(&["--vfs", "hpre=3"]);
    insta::assert_snapshot!("driver_vfs_other", node.transcript("install", &["--vfs", "hpre=5"]));
    insta::assert_snapshot!("driver_vfs_none", node.transcript("install", &["--vfs", "hpre=0"]));
    assert_eq!(node.state(), before);
    node.set("sys/bus/pci/devices/0000:76:00.0/sriov_totalvfs", "4");
    insta::assert_snapshot!("driver_vfs_many", node.transcript("install", &["--vfs", "sec=5"]));
    assert_eq!(node.read("sys/bus/pci/devices/0000:b6:00.0/sriov_numvfs").trim(), "0", "all or none");
}

#[test]
fn own_virtual_functions_are_in_nobodys_way() {
    let node = Fake::with_driver();
    node.install(&["--vfs", "hpre=3"]);
    node.install(&["--install-policy", "Always", "--vfs", "hpre=5"]);
    assert_eq!(node.read("sys/bus/pci/devices/0000:b9:00.0/sriov_numvfs"), "5");
    assert!(node.run("remove", &[]).status.success());
    assert_eq!(node.read("sys/bus/pci/devices/0000:b9:00.0/sriov_numvfs"), "0");
}

#[test]
fn a_removal_leaves_nothing_of_the_driver_and_can_be_repeated() {
    let node = Fake::bare();
    let bare = node.state();
    node.supply("2.0.0-1", &ALL);
    node.install(&["--vfs", "hpre=2", "--uacce-mode", "nosva"]);
    node.forget_calls();
    insta::assert_snapshot!("driver_removed", node.transcript("remove", &[]));
    insta::assert_snapshot!("driver_removed_calls", node.calls().join("\n"));
    assert!(!node.has(READY));
    let left: Vec<_> = node.state().into_iter().filter(|entry| !bare.contains_key(&entry.0)).collect();
    let expected = [
        ("lib/modules/5.10.0-136.12.0.86.aarch64/modules.dep".to_owned(), "0644 ".to_owned()),
        (
            "run/openfuyao/kae/driver-removed".to_owned(),
            "0644 11111111-2222-3333-4444-555555555555".to_owned(),
        ),
    ];
    assert_eq!(left, expected);
    insta::assert_snapshot!("driver_removed_again", node.transcript("remove", &[]));
}

#[test]
fn packages_that_were_there_before_are_not_removed() {
    let node = Fake::bare();
    node.supply("2.0.0-1", &ALL);
    node.set("fake/packages", "kae_driver kae_driver-1.3.0-1.aarch64\n");
    node.install(&["--uacce-mode", "nosva"]);
    node.forget_calls();
    assert!(node.run("remove", &[]).status.success());
    assert_eq!(node.calls_of(&["dnf"]), [""; 0]);
}

#[test]
fn a_module_that_is_part_of_the_kernel_stays() {
    let node = Fake::with_driver();
    node.delete("sys/module/uacce/refcnt");
    // What is part of the kernel has no count, and rmmod would fail.
    node.set("fake/fail", "rmmod uacce");
    insta::assert_snapshot!("driver_built_in", node.transcript("remove", &[]));
}

/// What a person or the operator does to a node.
#[derive(Debug, Clone, Copy)]
enum Step {
    Install,
    InstallAlways,
    Remove,
    Reboot,
    OtherKernel,
    NewVersion,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        Just(Step::Install),
        Just(Step::InstallAlways),
        Just(Step::Remove),
        Just(Step::Reboot),
        Just(Step::OtherKernel),
        Just(Step::NewVersion),
    ];
    proptest::collection::vec(step, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6) })]

    #[test]
    fn whatever_happened_before_an_installation_makes_the_engines_usable_and_a_removal_leaves_none(steps in steps()) {
        let node = Fake::bare();
        node.supply("2.0.0-1", &ALL);
        let mut kernel = KERNEL.to_owned();
        let ends = |verb: &str, arguments: &[&str]| {
            let output = node.run(verb, arguments);
            prop_assert!(output.status.success(), "{verb}: {}", node.text(&output));
            // Done again, it changes nothing.
            let state = node.state();
            let again = node.run(verb, &[]);
            prop_assert!(again.status.success(), "{verb} again: {}", node.text(&again));
            prop_assert_eq!(state, node.state());
            Ok(())
        };
        for step in steps {
            match step {
                Step::Install => ends("install", &[])?,
                Step::InstallAlways => ends("install", &["--install-policy", "Always"])?,
                Step::Remove => ends("remove", &[])?,
                Step::Reboot => node.reboot(&kernel),
                Step::OtherKernel => {
                    kernel += "1";
                    node.reboot(&kernel);
                }
                Step::NewVersion => node.supply(&format!("2.0.{}-1", kernel.len()), &ALL),
            }
        }
        ends("install", &[])?;
        prop_assert!(node.run("check", &[]).status.success());
        ends("remove", &[])?;
        prop_assert!(!node.has("sys/module/uacce") && !node.has("etc/openfuyao/kae/driver.json"));
        prop_assert_eq!(node.read("fake/packages"), "");
    }
}
