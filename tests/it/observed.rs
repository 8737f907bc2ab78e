//! A daemon that is watched: with an address, a config file and the small kubelet; and a client of its pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use assert_cmd::Command;
use pcidp::daemon::{self, ConfigSource, DeviceInfoDirectory, Options, Place, RunError};
use pcidp::host::HostRoot;
use pcidp::kubelet::stand_in::StandIn;
use pcidp::observe::Report;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::machine::remove_node;
use crate::node::host;

/// The daemon with what is around it. Dropping it ends all.
pub(crate) struct Observed {
    pub(crate) kubelet: StandIn,
    pub(crate) look_again: Arc<Notify>,
    stop: Option<oneshot::Sender<()>>,
    plugin: JoinHandle<Result<(), RunError>>,
    directory: TempDir,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// The config of the demo.
pub(crate) const DEMO: &str = include_str!("../../examples/demo.json");

impl Observed {
    /// The demo's host with a device that is unhealthy, and one that a pod holds.
    pub(crate) async fn with_something_to_see() -> Self {
        let host = host("demo");
        let plugin = Self::start(&host, DEMO).await;
        plugin.ready().await;
        remove_node(&host, "/dev/vfio/52");
        plugin.look_again.notify_one();
        plugin.eventually("one is unhealthy", |report| report.pools[1].healthy == 1).await;
        plugin.holds("x.io/sriov_net", &["0000:17:11.1"]);
        plugin
    }

    pub(crate) async fn start(host: &HostRoot, config: &str) -> Self {
        Self::start_with(host, config, |options| options).await
    }

    pub(crate) async fn start_with(
        host: &HostRoot,
        config: &str,
        change: impl FnOnce(Options) -> Options,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config/config.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, config).unwrap();
        let kubelet = StandIn::start(directory.path()).await.unwrap();
        let source = ConfigSource { place: Place::File(file), prefix: "x.io".to_owned() };
        let look_again = Arc::new(Notify::new());
        let loaded = source.load().unwrap();
        let options = Options {
            problems: loaded.problem_lines(),
            text: loaded.text,
            device_info: DeviceInfoDirectory::new(directory.path().join("devinfo")),
            scan_every: Duration::from_secs(3600),
            http: Some("127.0.0.1:0".parse().unwrap()),
            look_again: Arc::clone(&look_again),
            ..Options::new(host.clone(), loaded.checked.config, directory.path())
        };
        let options = change(Options { source: Some(source), ..options });
        let (stop, stopped) = oneshot::channel::<()>();
        let plugin = tokio::spawn(daemon::run(options, async {
            let _ = stopped.await;
        }));
        Self { kubelet, look_again, stop: Some(stop), plugin, directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Puts another config in the place of the one that is there; the plugin finds it.
    pub(crate) fn configure(&self, text: &str) {
        let file = self.directory().join("config/config.json");
        let new = self.directory().join("new.json");
        fs::write(&new, text).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Writes the kubelet's checkpoint: one container holds these.
    pub(crate) fn holds(&self, resource: &str, ids: &[&str]) {
        let entry = serde_json::json!({"PodUID": "8a0f", "ContainerName": "main", "ResourceName": resource,
            "DeviceIDs": {"0": ids}, "AllocResp": ""});
        let checkpoint = serde_json::json!({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1});
        fs::write(self.directory().join("kubelet_internal_checkpoint"), checkpoint.to_string()).unwrap();
    }

    /// The sockets on which instances tell of themselves.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory().join("pcidp")).into_iter().flatten();
        let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|p| !p.is_dir()).collect();
        found.sort();
        found
    }

    /// Asks at the unix socket.
    pub(crate) async fn get(&self, path: &str) -> Page {
        let socket = self.sockets().remove(0);
        ask(UnixStream::connect(socket).await.unwrap(), &request("GET", path)).await
    }

    pub(crate) async fn report(&self) -> Report {
        serde_json::from_str(&self.get("/status").await.body).unwrap()
    }

    /// Waits until the plugin tells this of itself.
    pub(crate) async fn eventually(&self, what: &str, condition: impl Fn(&Report) -> bool) -> Report {
        let wait = async {
            loop {
                if !self.sockets().is_empty() {
                    let report = self.report().await;
                    if condition(&report) {
                        return report;
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("{what}"))
    }

    pub(crate) async fn ready(&self) -> Report {
        self.eventually("it is ready", |report| report.unready().is_empty()).await
    }

    /// The address for people.
    pub(crate) async fn address(&self) -> String {
        let is_one = |address: &String| address.parse::<std::net::SocketAddr>().is_ok();
        let has = |report: &Report| report.http.as_ref().is_some_and(is_one);
        self.eventually("an address", has).await.http.unwrap()
    }

    /// Asks at the address.
    pub(crate) async fn at_address(&self, request: &str) -> Page {
        let address = self.address().await;
        ask(TcpStream::connect(address).await.unwrap(), request).await
    }

    /// Runs `pcidp status` as in the container, beside the daemon.
    pub(crate) async fn status(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pcidp"));
        command.arg("status").arg("--device-plugin-dir").arg(self.directory()).args(arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// What it prints, without what is another each time.
    pub(crate) async fn printed(&self, arguments: &[&str]) -> String {
        let output = self.status(arguments).await;
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        self.settled(&text) + &format!("--- exit {}\n", output.status.code().unwrap())
    }

    /// A text without what is another each time.
    pub(crate) fn settled(&self, text: &str) -> String {
        let text = text.replace(self.directory().to_str().unwrap(), "DIRECTORY");
        let patterns = [
            (r"127\.0\.0\.1:\d+", "ADDRESS"),
            (r"(instance(?:</dt><dd>|\W+))[0-9a-f]{8}", "${1}INSTANCE"),
            (r"status-[0-9a-f]{8}", "status-INSTANCE"),
            (r"(for|up) \d+ s", "$1 TIME"),
            (r#"("\w+Seconds": )\d+"#, "${1}0"),
            (r#"("milliseconds": )[0-9.e-]+"#, "${1}0"),
        ];
        patterns.iter().fold(text, |text, (pattern, by)| {
            regex_lite::Regex::new(pattern).unwrap().replace_all(&text, *by).into_owned()
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.plugin.is_finished()
    }

    pub(crate) async fn stop(mut self) -> TempDir {
        self.stop.take();
        (&mut self.plugin).await.unwrap().unwrap();
        self.directory
    }
}

pub(crate) fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// One request on one connection, to its end.
pub(crate) async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Page {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    Page { status, head: head.to_owned(), body: body.to_owned() }
}
