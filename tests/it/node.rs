//! A node for tests: a recorded host, the daemon, and the small kubelet, over real sockets in a temporary directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pcidp::config::{self, Checked};
use pcidp::daemon::{self, DeviceInfoDirectory, RunError};
use pcidp::host::HostRoot;
use pcidp::kubelet::stand_in::StandIn;
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

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
    stop: oneshot::Sender<()>,
    plugin: JoinHandle<Result<(), RunError>>,
    directory: TempDir,
}

impl Node {
    pub(crate) async fn start(host: &HostRoot, config: config::Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubelet = StandIn::start(directory.path()).await.unwrap();
        let look_again = Arc::new(Notify::new());
        let options = daemon::Options {
            host: host.clone(),
            config,
            device_plugin_directory: directory.path().to_owned(),
            device_info: DeviceInfoDirectory::new(directory.path().join("devinfo")),
            scan_every: Duration::from_secs(3600),
            look_again: Arc::clone(&look_again),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let plugin = tokio::spawn(daemon::run(options, async {
            let _ = stopped.await;
        }));
        Self { kubelet, look_again, stop, plugin, directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn device_info(&self) -> PathBuf {
        self.directory.path().join("devinfo")
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.plugin.await.unwrap().unwrap();
    }
}
