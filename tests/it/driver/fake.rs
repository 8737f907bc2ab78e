//! A directory that looks like a node, with programs that change it as the kernel would; and the real program on it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use pcidp::host::HostRoot;

use crate::machine::{lay_out, recorded, write};

pub(super) const KERNEL: &str = "5.10.0-136.12.0.86.aarch64";
const MODULES: [&str; 5] = ["uacce", "hisi_qm", "hisi_hpre", "hisi_sec2", "hisi_zip"];
const PROGRAMS: [&str; 6] =
    ["sbin/modprobe", "sbin/rmmod", "sbin/depmod", "bin/udevadm", "bin/rpm", "bin/dnf"];

/// A node.
pub(super) struct Fake {
    host: HostRoot,
    /// Where packages lie, in the image of the driver.
    packages: tempfile::TempDir,
}

impl Fake {
    /// A two-socket machine on openEuler, without virtual functions and without a driver.
    pub(super) fn bare() -> Self {
        let fake = Self::of(&recorded("kunpeng-920"));
        for address in ["79:00.1", "79:00.2", "79:00.3"] {
            fs::remove_file(fake.at(&format!("sys/bus/pci/devices/0000:{address}"))).unwrap();
        }
        for index in 0..3 {
            fs::remove_file(fake.at(&format!("sys/bus/pci/devices/0000:79:00.0/virtfn{index}"))).unwrap();
        }
        fake.set("sys/bus/pci/devices/0000:79:00.0/sriov_numvfs", "0");
        for entry in fs::read_dir(fake.at("sys/bus/pci/devices")).unwrap() {
            let function = entry.unwrap().path();
            fs::remove_dir_all(function.join("uacce")).unwrap();
            fs::remove_file(function.join("driver")).unwrap();
        }
        fs::remove_dir_all(fake.at("sys/class/uacce")).unwrap();
        fs::remove_dir_all(fake.at("dev")).unwrap();
        fs::create_dir(fake.at("dev")).unwrap();
        fake
    }

    /// A recorded machine as it is, with programs.
    pub(super) fn of(recording: &str) -> Self {
        let fake = Self { host: lay_out(recording), packages: tempfile::tempdir().unwrap() };
        fake.set("proc/sys/kernel/osrelease", KERNEL);
        fake.set("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555");
        fake.set("etc/os-release", "ID=\"openEuler\"\nVERSION_ID=\"22.03\"\n");
        fake.set("etc/group", "root:x:0:\nkae:x:4711:\n");
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/driver/programs.sh");
        fs::create_dir_all(fake.at("usr/libexec")).unwrap();
        fs::copy(programs, fake.at("usr/libexec/programs")).unwrap();
        fs::set_permissions(fake.at("usr/libexec/programs"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(fake.at("fake")).unwrap();
        fake.set("fake/packages", "");
        fs::create_dir_all(fake.at("usr/sbin")).unwrap();
        fs::create_dir_all(fake.at("usr/bin")).unwrap();
        for program in PROGRAMS {
            symlink("../libexec/programs", fake.at(&format!("usr/{program}"))).unwrap();
        }
        fake
    }

    /// One with the driver of the KAE packages, loaded.
    pub(super) fn with_driver() -> Self {
        let fake = Self::bare();
        fake.supply("2.0.0-1", &MODULES);
        fake.install(&["--uacce-mode", "nosva", "--pf-queues", "256"]);
        fake.forget_calls();
        fake
    }

    pub(super) fn root(&self) -> &Path {
        self.host.path()
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(super) fn set(&self, path: &str, content: &str) {
        write(&self.at(path), content);
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    pub(super) fn delete(&self, path: &str) {
        fs::remove_file(self.at(path)).unwrap();
    }

    pub(super) fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.at(path)).unwrap().permissions().mode() & 0o7777
    }

    /// Supplies a version of the driver's package, with these modules, in the place of another one.
    pub(super) fn supply(&self, version: &str, modules: &[&str]) {
        let content = format!("kae_driver kae_driver-{version}.aarch64\n{}\n", modules.join("\n"));
        fs::write(self.packages.path().join("kae_driver.rpm"), content).unwrap();
    }

    /// The kernel's own modules, which know modes 0 and 1.
    pub(super) fn with_modules_of_the_kernel(self) -> Self {
        self.give_kernel_modules();
        self
    }

    pub(super) fn give_kernel_modules(&self) {
        let kernel = self.read("proc/sys/kernel/osrelease");
        for module in MODULES {
            self.set(&format!("lib/modules/{kernel}/kernel/{module}.ko"), "in-tree");
        }
        let index: String = MODULES.iter().map(|module| format!("kernel/{module}.ko:\n")).collect();
        self.set(&format!("lib/modules/{kernel}/modules.dep"), &index);
    }

    /// Loads a module as the node itself would.
    pub(super) fn modprobe(&self, arguments: &[&str]) {
        let output = Command::new(self.at("usr/sbin/modprobe")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.forget_calls();
    }

    pub(super) fn command(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kae-operator"));
        command.args(["driver", verb, "--root"]).arg(self.root()).args(["--programs", "direct"]);
        if !arguments.contains(&"--types") && verb != "in-root" {
            command.args(["--types", "hpre,sec"]);
        }
        if verb == "install" {
            command.arg("--packages").arg(self.packages.path());
        }
        command.args(arguments).env_remove("INSTALL_POLICY").env_remove("KEYINSTALL_POLICY");
        command
    }

    pub(super) fn run(&self, verb: &str, arguments: &[&str]) -> Output {
        self.command(verb, arguments).output().unwrap()
    }

    /// An installation that must succeed.
    pub(super) fn install(&self, arguments: &[&str]) -> String {
        let output = self.run("install", arguments);
        assert!(output.status.success(), "{}", self.text(&output));
        self.text(&output)
    }

    /// What a command says and how it ends, for a snapshot.
    pub(super) fn transcript(&self, verb: &str, arguments: &[&str]) -> String {
        let shown = [&[verb], arguments].concat().join(" ");
        format!("$ kae-operator driver {shown}\n{}", self.text(&self.run(verb, arguments)))
    }

    pub(super) fn text(&self, output: &Output) -> String {
        let stream = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut text = stream(&output.stdout);
        if !output.stderr.is_empty() {
            text += &format!("--- stderr\n{}", stream(&output.stderr));
        }
        text += &match output.status.code() {
            Some(code) => format!("--- exit {code}\n"),
            None => format!("--- {}\n", output.status),
        };
        let shown = |path: &Path| path.display().to_string();
        text.replace(&shown(self.packages.path()), "<packages>").replace(&shown(self.root()), "<root>")
    }

    /// Programs that were run, with their arguments.
    pub(super) fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.at("fake/calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Calls that begin with one of these names.
    pub(super) fn calls_of(&self, names: &[&str]) -> Vec<String> {
        let is_one = |call: &String| names.iter().any(|name| call.split(' ').next() == Some(name));
        self.calls().into_iter().filter(is_one).collect()
    }

    pub(super) fn forget_calls(&self) {
        let _ = fs::remove_file(self.at("fake/calls"));
    }

    /// Another boot, perhaps of another kernel: nothing is loaded, `/run` is empty.
    pub(super) fn reboot(&self, kernel: &str) {
        for module in ["hisi_zip", "hisi_hpre", "hisi_sec2", "hisi_qm", "uacce"] {
            let _ = fs::remove_file(self.at(&format!("fake/users-{module}")));
            if self.has(&format!("sys/module/{module}")) {
                let output = Command::new(self.at("usr/sbin/rmmod")).arg(module).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
        }
        let _ = fs::remove_dir_all(self.at("run"));
        self.set("proc/sys/kernel/osrelease", kernel);
        self.set("proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555");
        fs::create_dir_all(self.at(&format!("lib/modules/{kernel}"))).unwrap();
        self.forget_calls();
    }

    /// Everything that the driver has to do with: contents, links and modes, by path. Numbers of entries are left out, for
    /// they change with every load.
    pub(super) fn state(&self) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        for directory in ["sys", "dev", "etc", "lib", "run", "fake/packages"] {
            collect(self.root(), &self.at(directory), &mut state);
        }
        state
    }

    /// Starts a command that runs on.
    pub(super) fn start(&self, verb: &str, arguments: &[&str]) -> Running {
        let mut command = self.command(verb, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }
}

fn collect(root: &Path, place: &Path, state: &mut BTreeMap<String, String>) {
    let Ok(metadata) = place.symlink_metadata() else { return };
    let shown = place.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    let entry = |text: &str| {
        let (name, number) = text.rsplit_once('-').unwrap_or((text, ""));
        let is_entry = name.contains("hisi_") && !number.is_empty() && number.parse::<u32>().is_ok();
        if is_entry { format!("{name}-N") } else { text.to_owned() }
    };
    let shown = shown.split('/').map(entry).collect::<Vec<_>>().join("/");
    if metadata.is_symlink() {
        let target = fs::read_link(place).unwrap().to_str().unwrap().to_owned();
        state.insert(shown, format!("-> {}", target.split('/').map(entry).collect::<Vec<_>>().join("/")));
    } else if metadata.is_dir() {
        for below in fs::read_dir(place).unwrap() {
            collect(root, &below.unwrap().path(), state);
        }
    } else if !place.ends_with("lock") {
        let content = String::from_utf8_lossy(&fs::read(place).unwrap()).into_owned();
        // The validation file tells names of entries.
        let content = if place.ends_with("driver-ready") { "ready".to_owned() } else { content };
        state.insert(shown, format!("{:04o} {}", metadata.permissions().mode() & 0o7777, content.trim_end()));
    }
}

/// A command that runs on, until it is dropped.
pub(super) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// The next line that it says; blocks until it says one.
    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    /// Sends SIGTERM; returns what was still said, and the exit code.
    pub(super) fn terminate(mut self) -> (String, Option<i32>) {
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.end()
    }

    /// Waits for its end.
    pub(super) fn end(&mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
