//! The driver of a node: the real program on a directory that looks like a node, with programs that change it.

mod changes;
mod fake;
mod faults;
mod running;

use fake::{Fake, KERNEL};

const ALL: [&str; 5] = ["uacce", "hisi_qm", "hisi_hpre", "hisi_sec2", "hisi_zip"];
const READY: &str = "run/openfuyao/kae/driver-ready";

#[test]
fn packages_are_installed_on_a_bare_node_and_a_second_time_nothing_is_done() {
    let node = Fake::bare();
    node.supply("2.0.0-1", &ALL);
    let arguments = ["--uacce-mode", "nosva", "--pf-queues", "256", "--device-group", "kae"];
    insta::assert_snapshot!("driver_installed", node.transcript("install", &arguments));
    insta::assert_snapshot!("driver_installed_calls", node.calls().join("\n"));
    insta::assert_snapshot!("driver_options", node.read("etc/modprobe.d/openfuyao-kae.conf"));
    insta::assert_snapshot!("driver_rule", node.read("etc/udev/rules.d/60-openfuyao-kae.rules"));
    insta::assert_snapshot!("driver_record", node.read("etc/openfuyao/kae/driver.json"));
    insta::assert_snapshot!("driver_ready", node.read(READY));
    assert_eq!(node.mode("dev/hisi_hpre-0"), 0o666);
    assert!(!node.has("run/openfuyao/kae/packages"), "the copies are gone");

    node.forget_calls();
    let before = node.state();
    insta::assert_snapshot!("driver_installed_again", node.transcript("install", &arguments));
    assert_eq!(node.calls(), [""; 0]);
    assert_eq!(node.state(), before);
}

#[test]
fn a_preinstalled_driver_is_kept_and_only_its_nodes_are_opened() {
    let node = Fake::bare().with_modules_of_the_kernel();
    node.modprobe(&["hisi_hpre", "uacce_mode=1"]);
    node.modprobe(&["hisi_sec2", "uacce_mode=1"]);
    node.supply("2.0.0-1", &ALL);
    insta::assert_snapshot!("driver_kept", node.transcript("install", &[]));
    assert_eq!(node.calls(), ["udevadm control --reload"]);
    assert!(!node.has("etc/modprobe.d/openfuyao-kae.conf"));
    assert!(!node.has("etc/openfuyao/kae/driver.json"), "nothing is to be removed later");
    assert_eq!(node.mode("dev/hisi_sec2-2"), 0o666);
    assert!(node.read(READY).contains("\"driver\": \"found\""));
}

#[test]
fn a_driver_that_serves_the_kernel_alone_is_reloaded_when_nobody_uses_it() {
    let node = Fake::bare().with_modules_of_the_kernel();
    node.modprobe(&["hisi_hpre"]);
    node.modprobe(&["hisi_zip"]);
    insta::assert_snapshot!("driver_mode0", node.transcript("install", &["--types", "hpre"]));
    // ZIP was loaded for the kernel, and nobody asked for anything else.
    assert_eq!(node.read("sys/module/hisi_zip/parameters/uacce_mode").trim(), "0");

    let node = Fake::bare().with_modules_of_the_kernel();
    node.modprobe(&["hisi_hpre"]);
    node.set("fake/users-hisi_hpre", "2");
    node.set("sys/module/hisi_hpre/refcnt", "2");
    let before = node.state();
    insta::assert_snapshot!("driver_mode0_busy", node.transcript("install", &["--types", "hpre"]));
    assert_eq!(node.state(), before);

    // As recorded: with a virtual function.
    let node = Fake::of(&crate::machine::recorded("kunpeng-920-mode0")).with_modules_of_the_kernel();
    node.set("sys/module/hisi_hpre/parameters/uacce_mode", "0");
    for module in ["uacce", "hisi_qm", "hisi_hpre"] {
        node.set(&format!("sys/module/{module}/refcnt"), "0");
    }
    insta::assert_snapshot!("driver_mode0_recorded", node.transcript("install", &["--types", "hpre"]));
    assert_eq!(node.calls(), [""; 0]);
}

#[test]
fn always_unloads_in_order_and_loads_what_was_there_again() {
    let node = Fake::with_driver();
    node.modprobe(&["hisi_zip"]);
    node.supply("2.0.1-1", &ALL);
    let text = node.install(&["--install-policy", "Always", "--uacce-mode", "nosva"]);
    insta::assert_snapshot!("driver_always", text);
    assert_eq!(
        node.calls_of(&["rmmod", "modprobe"]),
        [
            "rmmod hisi_zip",
            "rmmod hisi_hpre",
            "rmmod hisi_sec2",
            "rmmod hisi_qm",
            "rmmod uacce",
            "modprobe hisi_hpre",
            "modprobe hisi_sec2",
            "modprobe hisi_zip uacce_mode=0 pf_q_num=64"
        ]
    );
    assert_eq!(
        node.read("lib/modules/5.10.0-136.12.0.86.aarch64/extra/hisi_hpre.ko").trim(),
        "kae_driver-2.0.1-1.aarch64"
    );
}

#[test]
fn a_driver_in_use_is_not_taken_away_and_every_holder_is_named() {
    let node = Fake::with_driver();
    node.set("sys/bus/pci/devices/0000:79:00.0/uacce/hisi_hpre-0/available_instances", "254");
    node.set("proc/4242/comm", "openssl\n");
    std::fs::create_dir_all(node.at("proc/4242/fd")).unwrap();
    std::os::unix::fs::symlink("/dev/hisi_hpre-0", node.at("proc/4242/fd/7")).unwrap();
    node.set("sys/bus/pci/devices/0000:b9:00.0/sriov_numvfs", "3");
    node.set("sys/module/hisi_qm/holders/hisi_rde", "");
    node.set("sys/module/hisi_qm/refcnt", "3");
    node.set("sys/module/hisi_sec2/refcnt", "4");
    // The third virtual function of the recording is on vfio-pci.
    std::os::unix::fs::symlink(
        "../../../devices/pci0000:78/0000:78:00.0/0000:79:00.3",
        node.at("sys/bus/pci/devices/0000:79:00.3"),
    )
    .unwrap();
    let before = node.state();
    insta::assert_snapshot!("driver_busy", node.transcript("install", &["--install-policy", "Always"]));
    insta::assert_snapshot!("driver_busy_remove", node.transcript("remove", &[]));
    assert_eq!(node.state(), before, "the validation file is as true as before");
    assert_eq!(node.calls(), [""; 0]);
}

#[test]
fn a_mode_that_works_is_found_and_an_administrators_choice_is_kept() {
    let node = Fake::bare().with_modules_of_the_kernel();
    insta::assert_snapshot!("driver_auto", node.transcript("install", &[]));

    let node = Fake::bare().with_modules_of_the_kernel();
    for (module, mode) in [("hisi_hpre", 1), ("hisi_sec2", 1)] {
        node.set(&format!("etc/modprobe.d/{module}.conf"), &format!("options {module} uacce_mode={mode}\n"));
    }
    insta::assert_snapshot!("driver_auto_chosen", node.transcript("install", &["--pf-queues", "32"]));
    let options = node.read("etc/modprobe.d/openfuyao-kae.conf");
    assert!(
        !options.contains("uacce_mode") && options.contains("options hisi_sec2 pf_q_num=32"),
        "{options}"
    );
}

#[test]
fn what_the_node_lacks_is_said_and_missing_hardware_is_no_fault_of_the_rest() {
    let node = Fake::bare();
    insta::assert_snapshot!("driver_no_module", node.transcript("install", &[]));
    node.supply("2.0.0-1", &ALL);
    node.delete("usr/bin/dnf");
    insta::assert_snapshot!("driver_no_manager", node.transcript("install", &[]));

    let node = Fake::with_driver();
    for address in ["76:00.0", "b6:00.0", "75:00.0", "b5:00.0"] {
        node.delete(&format!("sys/bus/pci/devices/0000:{address}"));
    }
    insta::assert_snapshot!("driver_no_sec", node.transcript("install", &[]));
    insta::assert_snapshot!("driver_no_engine", node.transcript("install", &["--types", "sec,zip"]));
    insta::assert_snapshot!("driver_no_group", node.transcript("install", &["--device-group", "nobody"]));
    node.set("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n");
    insta::assert_snapshot!("driver_untested", node.transcript("install", &[]));
}

#[test]
fn a_repository_to_blame_is_named() {
    for (name, said) in [
        (
            "metadata",
            "Errors during downloading metadata for repository 'OS':\n  - Curl error (6): Couldn't resolve host name\nError: Failed to download metadata for repo 'OS': Cannot download repomd.xml: Cannot download repodata/repomd.xml: All mirrors were tried",
        ),
        (
            "devel",
            "Error: \n Problem: conflicting requests\n  - nothing provides kernel-devel = 5.10.0-136.12.0.86 needed by kae_driver-2.0.0-1.aarch64",
        ),
    ] {
        let node = Fake::bare();
        node.supply("2.0.0-1", &ALL);
        node.set(
            "etc/yum.repos.d/openEuler.repo",
            "[OS]\nname=OS\nenabled=1\n[update]\nenabled = 0\n[EPOL]\nname=x\n",
        );
        node.set("fake/repository", said);
        let before = node.state();
        insta::assert_snapshot!(format!("driver_repository_{name}"), node.transcript("install", &[]));
        assert_eq!(node.state(), before);
    }
}

#[test]
fn engines_of_virtual_machines_are_left_to_them() {
    let node = Fake::with_driver();
    for address in ["0000:76:00.0", "0000:b6:00.0"] {
        crate::machine::link(
            &node.at(&format!("sys/bus/pci/devices/{address}/driver")),
            "../../../../bus/pci/drivers/vfio-pci",
        );
        std::fs::remove_dir_all(node.at(&format!("sys/bus/pci/devices/{address}/uacce"))).unwrap();
    }
    insta::assert_snapshot!("driver_vfio", node.transcript("install", &[]));
}

#[test]
fn the_policy_comes_from_the_environment_too_and_the_flag_wins() {
    let node = Fake::with_driver();
    let unloads = |variable: &str, value: &str, arguments: &[&str]| {
        node.forget_calls();
        let output = node.command("install", arguments).env(variable, value).output().unwrap();
        (output.status.code(), !node.calls_of(&["rmmod"]).is_empty(), node.text(&output))
    };
    assert!(unloads("INSTALL_POLICY", "Always", &[]).1);
    assert!(unloads("KEYINSTALL_POLICY", "Always", &[]).1);
    assert!(!unloads("INSTALL_POLICY", "Always", &["--install-policy", "IfNotPresent"]).1);
    assert!(!unloads("INSTALL_POLICY", "", &[]).1);
    let (code, unloaded, text) = unloads("INSTALL_POLICY", "Sometimes", &[]);
    assert_eq!((code, unloaded), (Some(2), false));
    insta::assert_snapshot!("driver_bad_policy", text);
}

#[test]
fn arguments_that_mean_nothing_are_refused() {
    let node = Fake::bare();
    for arguments in [
        ["--types", "rde"],
        ["--device-mode", "rw"],
        ["--device-mode", "7777"],
        ["--device-group", "a\", RUN+=\"x"],
        ["--vfs", "hpre=64"],
        ["--vfs", "hpre"],
        ["--pf-queues", "1"],
        ["--uacce-mode", "both"],
    ] {
        assert_eq!(node.run("install", &arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(node.run("check", &["--root", "/proc"]).status.code(), Some(2));
}

#[test]
fn a_check_tells_everything_that_is_wrong_and_changes_nothing() {
    let node = Fake::bare();
    insta::assert_snapshot!("driver_check_bare", node.transcript("check", &[]));
    let node = Fake::with_driver();
    insta::assert_snapshot!("driver_check_good", node.transcript("check", &["-o", "json"]));
    node.delete("dev/hisi_sec2-3");
    node.set("sys/bus/pci/devices/0000:79:00.0/uacce/hisi_hpre-0/isolate", "1");
    node.set("sys/bus/pci/devices/0000:b9:00.0/uacce/hisi_hpre-1/api", "hisi_qm_v2_noiommu");
    let before = node.state();
    let arguments = ["--device-mode", "0660", "--device-group", "kae"];
    insta::assert_snapshot!("driver_check_wrong", node.transcript("check", &arguments));
    insta::assert_snapshot!(
        "driver_check_wrong_json",
        node.transcript("check", &[&arguments[..], &["-o", "json"]].concat())
    );
    insta::assert_snapshot!("driver_check_zip", node.transcript("check", &["--types", "zip"]));
    assert_eq!(node.state(), before);
    assert_eq!(node.calls(), [""; 0]);
}

#[test]
fn another_kernel_means_another_installation() {
    let node = Fake::with_driver();
    node.reboot("5.10.0-200.0.0.aarch64");
    let text = node.install(&[]);
    insta::assert_snapshot!("driver_other_kernel", text);
    assert_eq!(
        node.calls_of(&["dnf"]),
        ["dnf reinstall -y /run/openfuyao/kae/packages/kae_driver.rpm"],
        "the same version is there already"
    );
    node.reboot("5.10.0-200.0.0.aarch64");
    node.install(&[]);
    assert_eq!(node.calls_of(&["dnf"]), [""; 0], "the same packages for the same kernel");
    assert_ne!(node.read("proc/sys/kernel/osrelease"), KERNEL);
}
