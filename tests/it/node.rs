//! A node for tests: a recorded host, the daemon, and the small kubelet, over real sockets in a temporary directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pcidp::config::{self, Checked};
use pcidp::daemon::{self, CdiDirectory, DeviceInfoDirectory, RunError};
use pcidp::handout::CdiMode;
use pcidp::host::HostRoot;
use pcidp::kubelet::stand_in::{CallError, StandIn, State};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::machine;

/// The pool of [`Node::with_pool`].
pub(crate) const POOL: &str = "x.io/r";

/// Opens `testdata/hosts/<name>.host`.
pub(crate) fn host(name: &str) -> HostRoot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/hosts/{name}.host"));
    HostRoot::open(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks a config that stands in the test itself.
pub(crate) fn check(text: &str, prefix: &str) -> Checked {
    config::check(text, &config::Options { default_prefix: prefix, path: "config.json" })
}

/// A daemon with its kubelet. Dropping it ends both.
pub(crate) struct Node {
    pub(crate) kubelet: StandIn,
    pub(crate) look_again: Arc<Notify>,
    host: HostRoot,
    config: config::Config,
    tune: Tune,
    stop: Option<oneshot::Sender<()>>,
    plugin: JoinHandle<Result<(), RunError>>,
    directory: TempDir,
}

/// Changes what the daemon is given, each time that it is started.
type Tune = Arc<dyn Fn(&mut daemon::Options)>;

/// What one container received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) variables: BTreeMap<String, String>,
    /// `host -> container`, or the path where both are the same; every one is `rw`.
    pub(crate) nodes: Vec<String>,
    /// `host -> container`; every one is read-only.
    pub(crate) mounts: Vec<(PathBuf, PathBuf)>,
    /// Full names of CDI devices.
    pub(crate) cdi_devices: Vec<String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Answer {
    /// The variable `PCIDEVICE_X_IO_R`.
    pub(crate) fn ids(&self) -> &str {
        &self.variables["PCIDEVICE_X_IO_R"]
    }

    /// What `PCIDEVICE_X_IO_R_INFO` says of a device.
    pub(crate) fn info(&self, id: &str) -> Value {
        let info: Value = serde_json::from_str(&self.variables["PCIDEVICE_X_IO_R_INFO"]).unwrap();
        info[id].clone()
    }
}

impl Node {
    pub(crate) async fn start(host: &HostRoot, config: config::Config) -> Self {
        Self::start_tuned(host, config, |_| {}).await
    }

    /// A node that hands devices over through CDI.
    pub(crate) async fn start_with(host: &HostRoot, config: config::Config, cdi: Option<CdiMode>) -> Self {
        Self::start_tuned(host, config, move |options| {
            let directory = options.device_plugin_directory.join("cdi");
            options.cdi = cdi.map(|mode| CdiDirectory::new(directory, mode));
        })
        .await
    }

    /// A node whose daemon is given something else.
    pub(crate) async fn start_tuned(
        host: &HostRoot,
        config: config::Config,
        tune: impl Fn(&mut daemon::Options) + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubelet = StandIn::start(directory.path()).await.unwrap();
        let look_again = Arc::new(Notify::new());
        let tune: Tune = Arc::new(tune);
        let (stop, plugin) = run(host, &config, &tune, directory.path(), &look_again);
        Self { kubelet, look_again, host: host.clone(), config, tune, stop, plugin, directory }
    }

    /// A node with one pool, `x.io/r`, that has streamed at least one device.
    pub(crate) async fn with_pool(host: &HostRoot, members: &str) -> Self {
        let text = format!(r#"{{"resourceList":[{{"resourceName":"r",{members}}}]}}"#);
        let node = Self::start(host, machine::config(&text)).await;
        node.eventually("the pool has devices", |state| state.allocatable(POOL) > 0).await;
        node
    }

    /// Ends the daemon and starts another one in its place.
    pub(crate) async fn restart_plugin(&mut self) {
        let (stop, plugin) = self.another();
        drop(std::mem::replace(&mut self.stop, stop));
        std::mem::replace(&mut self.plugin, plugin).await.unwrap().unwrap();
    }

    /// Starts another daemon beside the first.
    pub(crate) fn another(&self) -> (Option<oneshot::Sender<()>>, JoinHandle<Result<(), RunError>>) {
        run(&self.host, &self.config, &self.tune, self.directory.path(), &self.look_again)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn device_info(&self) -> PathBuf {
        self.directory.path().join("devinfo")
    }

    /// Whether the daemon has not ended by itself.
    pub(crate) fn is_running(&self) -> bool {
        !self.plugin.is_finished()
    }

    /// The machine has changed.
    pub(crate) fn look(&self) {
        self.look_again.notify_one();
    }

    pub(crate) async fn eventually(&self, what: &str, condition: impl FnMut(&State) -> bool) -> State {
        self.kubelet.eventually(what, condition).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits for the list of `x.io/r`: each id, and whether it is healthy.
    pub(crate) async fn lists(&self, expected: &[(&str, bool)]) {
        self.eventually(&format!("{expected:?}"), |state| {
            let resource = state.resource(POOL);
            let found: Vec<_> =
                resource.devices().iter().map(|device| (device.id.as_str(), device.healthy)).collect();
            resource.connected && found == expected
        })
        .await;
    }

    /// One container's answer from `x.io/r`.
    pub(crate) async fn allocate(&self, ids: &[&str]) -> Result<Answer, CallError> {
        Ok(self.allocate_each(POOL, &[ids]).await?.remove(0))
    }

    /// The answers for several containers.
    pub(crate) async fn allocate_each(
        &self,
        resource: &str,
        containers: &[&[&str]],
    ) -> Result<Vec<Answer>, CallError> {
        let containers: Vec<Vec<String>> =
            containers.iter().map(|ids| ids.iter().map(|&id| id.to_owned()).collect()).collect();
        let answers = self.kubelet.allocate(resource, &containers).await?;
        let answer = |answer: pcidp::kubelet::api::deviceplugin::ContainerAllocateResponse| Answer {
            variables: answer.envs,
            mounts: answer
                .mounts
                .into_iter()
                .map(|mount| {
                    assert!(mount.read_only);
                    (mount.host_path.into(), mount.container_path.into())
                })
                .collect(),
            cdi_devices: answer.cdi_devices.into_iter().map(|device| device.name).collect(),
            annotations: answer.annotations.into_iter().collect(),
            nodes: answer
                .devices
                .into_iter()
                .map(|node| {
                    assert_eq!(node.permissions, "rw");
                    match node.host_path == node.container_path {
                        true => node.host_path,
                        false => format!("{} -> {}", node.host_path, node.container_path),
                    }
                })
                .collect(),
        };
        Ok(answers.into_iter().map(answer).collect())
    }

    /// Writes the kubelet's checkpoint: a container of its own holds the ids of each resource.
    pub(crate) fn holds(&self, held: &[(&str, &[&str])]) {
        let held: Vec<(&str, &[&str], &str)> =
            held.iter().map(|&(resource, ids)| (resource, ids, "")).collect();
        self.holds_with(&held);
    }

    /// The same, each with the answer that the container was given.
    pub(crate) fn holds_with(&self, held: &[(&str, &[&str], &str)]) {
        let entry = |(resource, ids, answer): &(&str, &[&str], &str)| {
            serde_json::json!({"PodUID": "u", "ContainerName": "c", "ResourceName": resource,
                "DeviceIDs": {"0": ids}, "AllocResp": answer})
        };
        let entries: Vec<Value> = held.iter().map(entry).collect();
        let checkpoint = serde_json::json!({"Data": {"PodDeviceEntries": entries}, "Checksum": 1});
        fs::write(self.directory().join("kubelet_internal_checkpoint"), checkpoint.to_string()).unwrap();
    }

    /// Waits for what no kubelet sees.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = async {
            while !condition(self) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap_or_else(|_| panic!("{what}"));
    }

    /// The device-information files, by name.
    pub(crate) fn files(&self) -> BTreeMap<String, Value> {
        let Ok(entries) = fs::read_dir(self.device_info()) else {
            return BTreeMap::new();
        };
        let read = |path: PathBuf| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        entries
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), read(entry.path())))
            .collect()
    }

    /// Ends the daemon; the kubelet and the directory stay.
    pub(crate) async fn end(&mut self) {
        self.stop.take();
        (&mut self.plugin).await.unwrap().unwrap();
    }

    pub(crate) async fn stop(mut self) {
        self.end().await;
    }
}

fn run(
    host: &HostRoot,
    config: &config::Config,
    tune: &Tune,
    directory: &Path,
    look_again: &Arc<Notify>,
) -> (Option<oneshot::Sender<()>>, JoinHandle<Result<(), RunError>>) {
    let mut options = daemon::Options {
        device_info: DeviceInfoDirectory::new(directory.join("devinfo")),
        scan_every: Duration::from_secs(3600),
        look_again: Arc::clone(look_again),
        ..daemon::Options::new(host.clone(), config.clone(), directory)
    };
    tune(&mut options);
    let (stop, stopped) = oneshot::channel::<()>();
    let plugin = tokio::spawn(daemon::run(options, async {
        let _ = stopped.await;
    }));
    (Some(stop), plugin)
}
