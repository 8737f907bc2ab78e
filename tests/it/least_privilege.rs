//! The real program on the machine itself, as root without a single capability, with everything read-only but the
//! kubelet's directory and that of device-information files. What the manifests give it is no more than that.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use pcidp::host::{HostRoot, Wanted, scan};
use pcidp::kubelet::stand_in::{StandIn, State};
use pcidp::model::Device;
use pcidp::observe::Report;

use crate::node::host;

/// Makes everything read-only in a mount namespace of its own, `$2` too, but for `$1`. `$3`, where it is not empty, is seen
/// as `/sys`. The rest is what to run.
const READ_ONLY: &str = r#"set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind "$2" "$2"
mount -o remount,bind,ro "$2"
if [ -n "$3" ]; then mount --bind "$3" /sys; fi
mount -o remount,bind,ro /sys
mount -o remount,bind,ro /
shift 3
exec "$@""#;

/// No capability, and none to be had again.
const SETPRIV: [&str; 5] =
    ["setpriv", "--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"];

/// A seccomp filter that refuses netlink sockets and no other, and then runs what follows. Its words are those of
/// <https://github.com/torvalds/linux/blob/master/include/uapi/linux/bpf_common.h>: load the number of the call; where it
/// is `socket`, load the address family; where that is `AF_NETLINK`, say EPERM. A filter is set by a call that Rust has
/// no safe form of.
const WITHOUT_NETLINK: &str = r#"my ($prctl, $socket) = (shift, shift);
my $filter = pack('(SCCL)*', 0x20, 0, 0, 0, 0x15, 0, 3, $socket, 0x20, 0, 0, 16, 0x15, 0, 1, 16,
    0x06, 0, 0, 0x00050001, 0x06, 0, 0, 0x7fff0000);
my $program = pack('S x![P] P', length($filter) / 8, $filter);
syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
syscall($prctl, 22, 2, $program, 0, 0) == 0 or die "seccomp: $!";
exec @ARGV or die "$ARGV[0]: $!";"#;

/// A test that cannot run says so past the harness, which swallows what a passing test prints.
fn skipped(what: &str, reason: &str) {
    let line = format!("SKIPPED: {what}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Why nobody can be confined here, if so.
fn obstacle() -> Option<String> {
    if !geteuid().is_root() {
        return Some("these tests take rights away, so they have to run as root".to_owned());
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", READ_ONLY, "sh"]).args([place.path(), place.path()]);
    match command.arg("").args(SETPRIV).arg("true").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare of util-linux is needed: {error}")),
    }
}

/// The plugin without rights, and the kubelet with all of them. Dropping it ends both.
struct Confined {
    kubelet: StandIn,
    plugin: Child,
    place: tempfile::TempDir,
    config: tempfile::TempDir,
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = self.plugin.kill();
        let _ = self.plugin.wait();
    }
}

impl Confined {
    /// `sys` is what it sees as `/sys`, where that is not the machine's own; `before` is what it is run by.
    async fn start(sys: Option<&Path>, before: &[&str], config: &str) -> Self {
        let (place, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sockets = place.path().join("device-plugins");
        fs::create_dir(&sockets).unwrap();
        let kubelet = StandIn::start(&sockets).await.unwrap();
        fs::write(directory.path().join("config.json"), config).unwrap();
        let log = fs::File::create(place.path().join("log")).unwrap();
        let plugin = Command::new("unshare")
            .args(["--mount", "sh", "-c", READ_ONLY, "sh"])
            .args([place.path(), directory.path(), sys.unwrap_or(Path::new(""))])
            .args(before)
            .args(SETPRIV)
            .arg(env!("CARGO_BIN_EXE_pcidp"))
            .args(["run", "--resource-prefix", "x.io", "--log-level", "debug", "--config-file"])
            .arg(directory.path().join("config.json"))
            .arg("--device-plugin-dir")
            .arg(&sockets)
            .arg("--device-info-dir")
            .arg(place.path().join("devinfo"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { kubelet, plugin, place, config: directory }
    }

    async fn eventually(&self, what: &str, condition: impl FnMut(&State) -> bool) -> State {
        self.kubelet
            .eventually(what, condition)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("log")).unwrap()
    }

    /// A directory of the plugin below `/proc`.
    fn process(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.plugin.id().to_string()).join(name)
    }

    /// A line of its `status`.
    fn status_line(&self, key: &str) -> String {
        let text = fs::read_to_string(self.process("status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t"));
        line.unwrap().to_owned()
    }

    /// `pcidp status` beside the plugin, as a probe of the kubelet runs it: there, and without rights, too.
    fn ask(&self, arguments: &[&str]) -> Output {
        Command::new("nsenter")
            .arg(format!("--mount=/proc/{}/ns/mnt", self.plugin.id()))
            .args(SETPRIV)
            .arg(env!("CARGO_BIN_EXE_pcidp"))
            .args(["status", "--device-plugin-dir"])
            .arg(self.place.path().join("device-plugins"))
            .args(arguments)
            .output()
            .unwrap()
    }

    fn report(&self) -> Report {
        let output = self.ask(&["-o", "json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Puts another config in the place of the one that is there. The plugin could not.
    fn configure(&self, text: &str) {
        let new = self.config.path().join("new.json");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.config.path().join("config.json")).unwrap();
    }

    /// What the kernel says of its rights.
    fn has_no_rights(&self) {
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(self.status_line(set), "0000000000000000", "{set}");
        }
        assert_eq!(self.status_line("NoNewPrivs"), "1");
        assert!(self.status_line("Uid").split('\t').all(|uid| uid == "0"));
        // With all rights, by the way that the plugin goes: no right helps on a file system that is read-only.
        let place = self.config.path().join("new").strip_prefix("/").unwrap().to_owned();
        for read_only in [Path::new("sys/bus/pci/rescan"), &place] {
            let error = fs::write(self.process("root").join(read_only), "0").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{}", read_only.display());
        }
    }

    async fn stop(mut self) {
        kill(Pid::from_raw(self.plugin.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let ended = async {
            loop {
                match self.plugin.try_wait().unwrap() {
                    Some(status) => return status,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let status = tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
        assert!(status.success(), "{status}");
    }
}

fn list(pools: &[String]) -> String {
    format!(r#"{{"resourceList":[{}]}}"#, pools.join(","))
}

/// A pool with one function, whatever it is.
fn pool(name: &str, device: &Device) -> String {
    let class = fs::read_to_string(format!("/sys/bus/pci/devices/{}/class", device.address)).unwrap();
    let class = class.trim_start_matches("0x").get(..4).unwrap();
    let driver = device.driver.clone().unwrap_or_default();
    format!(
        r#"{{"resourceName":"{name}","deviceType":"accelerator","selectors":
            {{"pciAddresses":["{}"],"classes":["{class}"],"drivers":["{driver}"]}}}}"#,
        device.address
    )
}

// DEP-02
#[tokio::test]
async fn without_a_capability_and_with_all_read_only_it_lives_a_whole_life() {
    let what = "the plugin was not run without capabilities";
    if let Some(reason) = obstacle() {
        return skipped(what, &reason);
    }
    let found = scan(&HostRoot::live(), &Wanted::everything().of_any_class());
    let is_free = |device: &&Device| device.default_route.is_none() && device.netdevs.is_empty();
    let devices = found.devices().iter().map(AsRef::as_ref).filter(is_free);
    let devices: Vec<&Device> = devices.take(2).collect();
    let [first, second] = *devices.as_slice() else {
        return skipped(what, "this machine has no two PCI functions that could be offered");
    };
    let mut node = Confined::start(None, &[], &list(&[pool("a", first)])).await;
    node.eventually("it is registered", |state| state.allocatable("x.io/a") == 1).await;
    node.has_no_rights();

    let ids = vec![first.id.to_string()];
    let answers = node.kubelet.allocate("x.io/a", std::slice::from_ref(&ids)).await.unwrap();
    assert_eq!(answers[0].envs["PCIDEVICE_X_IO_A"], ids[0]);
    assert!(fs::read_dir(node.place.path().join("devinfo")).unwrap().count() > 0, "{}", node.log());

    node.configure(&list(&[pool("a", first), pool("b", second)]));
    node.eventually("another pool", |state| state.allocatable("x.io/b") == 1).await;
    node.kubelet.restart().await.unwrap();
    node.eventually("both again", |state| state.allocatable("x.io/a") + state.allocatable("x.io/b") == 2)
        .await;

    // Uevents, links and routes are for everybody.
    let report = node.report();
    assert_eq!((report.deaf, report.notes), (Vec::new(), Vec::new()));
    assert!(node.ask(&["--live"]).status.success() && node.ask(&["--ready"]).status.success());
    node.stop().await;
}

// DEP-02
#[tokio::test]
async fn what_devlink_keeps_for_administrators_is_told_and_nothing_else_changes() {
    let what = "devlink was not asked without capabilities";
    if let Some(reason) = obstacle() {
        return skipped(what, &reason);
    }
    // A card with representors, seen as this machine's.
    let card = host("bluefield-sf");
    let config = list(&[
        r#"{"resourceName":"sf","deviceType":"auxNetDevice","selectors":{"auxTypes":["sf"]}}"#.to_owned(),
    ]);
    let node = Confined::start(Some(&card.path().join("sys")), &[], &config).await;
    let state = node.eventually("subfunctions", |state| state.allocatable("x.io/sf") > 0).await;
    let id = state.resource("x.io/sf").free().remove(0);
    node.kubelet.allocate("x.io/sf", &[vec![id]]).await.unwrap();
    let notes = node.report().notes;
    let refused = notes.iter().filter(|note| note.path.starts_with("devlink eswitch "));
    match fs::read_to_string("/proc/kallsyms").unwrap().contains(" devlink_alloc_ns") {
        true => assert!(refused.count() > 0, "{notes:?}"),
        false => skipped(what, "this kernel has no devlink, so that it refuses nothing"),
    }
    node.stop().await;
}

// DEP-02
#[tokio::test]
async fn without_netlink_it_serves_all_the_same_and_tells_what_it_cannot_hear() {
    let what = "the plugin was not run without netlink";
    if let Some(reason) = obstacle() {
        return skipped(what, &reason);
    }
    let (prctl, socket) = match std::env::consts::ARCH {
        "x86_64" => ("157", "41"),
        "aarch64" => ("167", "198"),
        other => return skipped(what, &format!("the numbers of its calls on {other} are not known here")),
    };
    let before = ["perl", "-e", WITHOUT_NETLINK, prctl, socket];
    match Command::new("perl").args(&before[1..]).arg("true").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skipped(what, String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => return skipped(what, &format!("it takes a perl to set a seccomp filter: {error}")),
    }
    let machine = host("two-socket");
    let vfs = |range: &str| {
        list(&[format!(
            r#"{{"resourceName":"r","settle":"0s","selectors":{{"pfNames":["ens1f0np0#{range}"]}}}}"#
        )])
    };
    let node = Confined::start(Some(&machine.path().join("sys")), &before, &vfs("0-1")).await;
    node.eventually("two VFs", |state| state.allocatable("x.io/r") == 2).await;
    node.has_no_rights();
    assert_eq!(node.status_line("Seccomp"), "2");
    node.kubelet.allocate("x.io/r", &[vec!["0000:17:01.0".to_owned()]]).await.unwrap();
    node.configure(&vfs("0-3"));
    node.eventually("four VFs", |state| state.allocatable("x.io/r") == 4).await;

    let report = node.report();
    for deaf in ["uevents: ", "rtnetlink: "] {
        assert!(report.deaf.iter().any(|told| told.starts_with(deaf)), "{:?}", report.deaf);
    }
    for path in ["netlink RTM_GETLINK", "netlink RTM_GETROUTE"] {
        assert!(report.notes.iter().any(|note| note.path == path), "{:?}", report.notes);
    }
    assert!(node.ask(&["--ready"]).status.success());
    node.stop().await;
}
