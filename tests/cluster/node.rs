//! A node: a recorded host with a cluster on it, in namespaces of its own.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use pcidp::host::recording::Recording;
use tempfile::TempDir;

use crate::host;
use crate::outcome::{Failure, Outcome, harness, must};

/// Every limit is ten times what was seen.
const BOOT_LIMIT: Duration = Duration::from_secs(100);
/// Set inside a virtual machine.
pub(crate) const INSIDE: &str = "PCIDP_CLUSTER_INSIDE";

/// For what a pod or the node's status needs, in seconds: 6 were seen, and 30 in a virtual machine.
pub(crate) fn limit() -> u64 {
    if env::var_os(INSIDE).is_some() { 300 } else { 60 }
}

/// Waits for something that nobody tells of; `kubectl wait` knows objects only.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Outcome<bool>) -> Outcome {
    let end = Instant::now() + Duration::from_secs(limit());
    while !holds()? {
        must(Instant::now() < end, format!("{what} within {} s", limit()))?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// What a node is made from.
pub(crate) struct Kit {
    /// Programs of the cluster.
    pub(crate) programs: PathBuf,
    /// Archives of images.
    pub(crate) images: PathBuf,
    /// Archive of our own image.
    pub(crate) pcidp: PathBuf,
}

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Ends with everything in it when dropped, and when this process ends, however that happens.
pub(crate) struct Node {
    outer: Option<Child>,
    /// First process in the namespaces; none where this process is on the node itself.
    first: Option<u32>,
    path: String,
    /// How much of the kubelet's log belongs to earlier scenarios.
    kubelet_log_from: u64,
    _boot_log: TempDir,
}

impl Node {
    /// `kubelet` is added to the kubelet's configuration.
    pub(crate) fn boot(recording: &Recording, kubelet: &str, kit: &Kit) -> Outcome<Self> {
        let tree = host::lay_out(recording).map_err(harness("cannot lay out the host"))?;
        let boot_log = tempfile::tempdir().map_err(harness("no temporary directory"))?;
        let log_path = boot_log.path().join("boot.log");
        let log = File::create(&log_path).map_err(harness("cannot write a log"))?;
        let mut outer = Command::new("sh")
            .arg(root().join("tests/cluster/node.sh"))
            .args([&kit.programs, &kit.images, &kit.pcidp])
            .arg(tree.path())
            .env("KUBELET", kubelet)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // A Ctrl-C must reach this process alone: the node ends with it, in its own order.
            .process_group(0)
            .spawn()
            .map_err(harness("cannot start node.sh"))?;
        let lines = lines_of(&mut outer);
        let limit = Instant::now() + BOOT_LIMIT;
        let mut first = 0;
        loop {
            let line = lines.recv_timeout(limit.saturating_duration_since(Instant::now()));
            match line.as_deref().unwrap_or("gone").split_once(' ') {
                Some(("first", pid)) => first = pid.parse().unwrap_or_default(),
                None if line.as_deref() == Ok("up") && first != 0 => break,
                _ => {
                    drop(outer.stdin.take());
                    let _ = outer.wait();
                    let log = fs::read_to_string(&log_path).unwrap_or_default();
                    return Err(Failure::Harness(format!("the node does not boot: {line:?}\n{log}")));
                }
            }
        }
        let (outer, first, path) = (Some(outer), Some(first), path_of(kit));
        Ok(Self { outer, first, path, kubelet_log_from: 0, _boot_log: boot_log })
    }

    /// The machine that this process runs on, which nobody uses otherwise.
    pub(crate) fn here(kit: &Kit) -> Outcome<Self> {
        let boot_log = tempfile::tempdir().map_err(harness("no temporary directory"))?;
        let output = Command::new("sh")
            .arg(root().join("tests/cluster/up.sh"))
            .args([&kit.programs, &kit.images, &kit.pcidp])
            .envs([("CGROUP", ""), ("LIMIT", &limit().to_string())])
            .stdin(Stdio::null())
            .output()
            .map_err(harness("cannot start up.sh"))?;
        text("up.sh", &output).map_err(|failure| Failure::Harness(format!("no cluster: {failure:?}")))?;
        let path = path_of(kit);
        Ok(Self { outer: None, first: None, path, kubelet_log_from: 0, _boot_log: boot_log })
    }

    /// A path of the node without absolute links in it, as this process reaches it.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        let first = self.first.map_or_else(|| "self".to_owned(), |first| first.to_string());
        PathBuf::from(format!("/proc/{first}/root{path}"))
    }

    /// A command of the node's own, as its root.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = match self.first {
            None => Command::new("timeout"),
            Some(first) => {
                let mut command = Command::new("nsenter");
                command.args(["--target", &first.to_string()]);
                command.args(["--mount", "--net", "--uts", "--ipc", "--pid", "timeout"]);
                command
            }
        };
        command
            .args([&(2 * limit()).to_string(), program])
            .env("PATH", &self.path)
            .env("KUBECONFIG", "/run/cluster/kubeconfig")
            .env("HOME", "/run/tmp")
            .stdin(Stdio::null());
        command
    }

    fn output(&self, mut command: Command, input: Option<&str>) -> Outcome<Output> {
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(harness("cannot start nsenter"))?;
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            pipe.write_all(input.as_bytes()).map_err(harness("cannot write to a command"))?;
        }
        child.wait_with_output().map_err(harness("cannot wait for a command"))
    }

    /// Runs a shell script in the node.
    pub(crate) fn shell(&self, script: &str) -> Outcome<String> {
        let mut command = self.command("sh");
        command.args(["-euc", script]);
        text(script, &self.output(command, None)?)
    }

    /// What kubectl prints; `words` are split at spaces.
    pub(crate) fn kubectl(&self, words: &str) -> Outcome<String> {
        let words: Vec<&str> = words.split(' ').collect();
        self.kubectl_with(&words, None)
    }

    /// The same, word by word, with a standard input.
    pub(crate) fn kubectl_with(&self, words: &[&str], input: Option<&str>) -> Outcome<String> {
        let mut command = self.command("kubectl");
        command.args(words);
        if self.first.is_none() && ["apply", "create"].contains(&words[0]) {
            // An emulated API server needs longer for its schema than kubectl waits.
            command.arg("--validate=false");
        }
        text(&format!("kubectl {}", words.join(" ")), &self.output(command, input)?)
    }

    /// Applies manifests.
    pub(crate) fn apply(&self, manifests: &str) -> Outcome {
        self.kubectl_with(&["apply", "-f", "-"], Some(manifests)).map(drop)
    }

    /// `kubectl wait`: `words` say on what and for what.
    pub(crate) fn wait(&self, words: &str) -> Outcome {
        self.kubectl(&format!("wait --timeout={}s {words}", limit())).map(drop)
    }

    /// A value from an object.
    pub(crate) fn get(&self, object: &str, path: &str) -> Outcome<String> {
        self.kubectl(&format!("get {object} -o jsonpath={{{path}}}"))
    }

    /// Waits until so many devices of a resource can be allocated.
    pub(crate) fn wait_for_capacity(&self, resource: &str, count: usize) -> Outcome {
        let path = resource.replace('.', "\\.");
        self.wait(&format!("node/node1 --for=jsonpath={{.status.allocatable.{path}}}={count}"))
    }

    /// How much can be allocated.
    pub(crate) fn capacity(&self, resource: &str) -> Outcome<String> {
        self.get("node/node1", &format!(".status.allocatable.{}", resource.replace('.', "\\.")))
    }

    /// Reads a file of the node. Links in its path lead where they lead there, unlike those below [`Node::at`].
    pub(crate) fn read(&self, path: &str) -> Outcome<String> {
        self.shell(&format!("cat '{path}'"))
    }

    /// From here on the kubelet's log belongs to another scenario.
    pub(crate) fn next_scenario(&mut self) {
        let log = fs::metadata(self.at("/run/cluster/log/kubelet.log"));
        self.kubelet_log_from = log.map_or(0, |log| log.len());
    }

    /// Whether the cluster itself works: if not, a failure is none of the product's.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        let alive = "for pid in /run/cluster/pid/*; do kill -0 $(cat $pid) || { echo ${pid##*/} is dead; exit 1; }; done";
        let checks = [
            self.shell(alive),
            self.kubectl("get --raw /readyz"),
            self.kubectl("wait --timeout=20s --for=condition=Ready node/node1"),
        ];
        checks.into_iter().find_map(Result::err).map_or(Ok(()), |failure| Err(format!("{failure:?}")))
    }

    /// What a person wants to see of a failure.
    pub(crate) fn evidence(&self) -> String {
        let mut told = String::new();
        let mut tell = |what: &str, text: String| told += &format!("--- {what}\n{}\n", text.trim_end());
        let or_why = |outcome: Outcome<String>| outcome.unwrap_or_else(|failure| format!("{failure:?}"));
        tell("pods", or_why(self.kubectl("get pods -A -o wide")));
        tell(
            "latest events",
            or_why(self.shell("kubectl get events -A --sort-by=.lastTimestamp | tail -n 25")),
        );
        tell("log of the plugin", or_why(self.shell("tail -n 60 /var/log/pods/kube-system_*/*/*.log")));
        tell("Multus", or_why(self.shell("tail -n 20 /run/cluster/log/multus.log | cut -c1-1500")));
        tell("the kubelet about us", self.kubelet_lines());
        let pcidp = env!("CARGO_BIN_EXE_pcidp");
        let devices = format!(
            "kubectl -n kube-system get configmap sriovdp-config -o 'jsonpath={{.data.config\\.json}}' > /run/cluster/config.json; \
             {pcidp} devices --config-file /run/cluster/config.json 2>&1"
        );
        tell("pcidp devices", or_why(self.shell(&devices)));
        told
    }

    fn kubelet_lines(&self) -> String {
        let mut log = String::new();
        if let Ok(mut file) = File::open(self.at("/run/cluster/log/kubelet.log")) {
            let _ = file.seek(SeekFrom::Start(self.kubelet_log_from));
            let _ = file.read_to_string(&mut log);
        }
        let about = [
            "evice plugin",
            "evice-plugin",
            "devicemanager",
            "/endpoint.go",
            "plugin_watcher",
            "PCIDEVICE",
            ".sock",
        ];
        // What it says of our pod is in the events.
        let is_about_us = |line: &&str| {
            about.iter().any(|word| line.contains(word)) && !line.contains("kube-sriov-device-plugin")
        };
        let lines: Vec<&str> = log.lines().filter(is_about_us).collect();
        // The kubelet prints whole objects.
        let shortened =
            lines.iter().rev().take(40).rev().map(|line| line.chars().take(400).collect::<String>());
        shortened.collect::<Vec<_>>().join("\n")
    }

    /// For a person: how to enter.
    pub(crate) fn entry(&self) -> String {
        format!(
            "nsenter --target {} --mount --net --uts --ipc --pid env PATH={} KUBECONFIG=/run/cluster/kubeconfig sh",
            self.first.unwrap_or_default(),
            self.path
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(outer) = &mut self.outer {
            drop(outer.stdin.take());
            let _ = outer.wait();
        }
    }
}

fn path_of(kit: &Kit) -> String {
    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", kit.programs.display())
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(out) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

fn text(what: &str, output: &Output) -> Outcome<String> {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Product(format!("{what}\n{out}{error}({})", output.status)))
}
