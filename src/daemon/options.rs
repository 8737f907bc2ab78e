//! What a daemon is given.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::{CdiDirectory, ConfigSource, DEVICE_INFO_DIRECTORY, DeviceInfoDirectory, Manner};
use crate::config::Config;
use crate::host::HostRoot;

/// The kubelet's directory of sockets, a constant of the kubelet whatever its root
/// (<https://github.com/kubernetes/kubelet/blob/v0.34.4/pkg/apis/deviceplugin/v1beta1/constants.go>).
pub const DEVICE_PLUGIN_DIRECTORY: &str = "/var/lib/kubelet/device-plugins";

/// Where the kubelet tells who holds which device, in its root directory
/// (<https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/apis/podresources/constants.go>).
pub const POD_RESOURCES_DIRECTORY: &str = "/var/lib/kubelet/pod-resources";

/// How often the machine is looked at where no event tells.
pub const SCAN_EVERY: Duration = Duration::from_secs(30);

/// What a daemon is given.
pub struct Options {
    /// The machine.
    pub host: HostRoot,
    /// The pools at the start.
    pub config: Config,
    /// Where another config may come from.
    pub source: Option<ConfigSource>,
    /// The text from which the config was read.
    pub text: String,
    /// What is wrong with it, a line each.
    pub problems: Vec<String>,
    /// Where the kubelet listens, and where the pools' sockets go.
    pub device_plugin_directory: PathBuf,
    /// How the kubelet learns of pools.
    pub manner: Manner,
    /// The kubelet's podresources socket; it need not exist.
    pub podresources: Option<PathBuf>,
    /// Where device-information files go.
    pub device_info: DeviceInfoDirectory,
    /// Where CDI specs go, where devices are handed over through CDI.
    pub cdi: Option<CdiDirectory>,
    /// Where pages and metrics are served for people and Prometheus, where they are.
    pub http: Option<SocketAddr>,
    /// The slow look that is the truth where no event tells.
    pub scan_every: Duration,
    /// Somebody thinks that the machine has changed.
    pub look_again: Arc<Notify>,
    /// Somebody wants the config to be read again, and the machine to be looked at.
    pub reload: Arc<Notify>,
}

impl Options {
    /// With everything else as it is by default.
    pub fn new(host: HostRoot, config: Config, device_plugin_directory: impl Into<PathBuf>) -> Self {
        Self {
            host,
            config,
            source: None,
            text: String::new(),
            problems: Vec::new(),
            device_plugin_directory: device_plugin_directory.into(),
            manner: Manner::Direct,
            podresources: None,
            device_info: DeviceInfoDirectory::new(DEVICE_INFO_DIRECTORY),
            cdi: None,
            http: None,
            scan_every: SCAN_EVERY,
            look_again: Arc::default(),
            reload: Arc::default(),
        }
    }
}

/// Why the daemon cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kubelet's directory is not there.
    #[error("{path} is not a directory; is it mounted? (--device-plugin-dir names another one)")]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The kubelet's registry is not there.
    #[error("{path} is not a directory; is it mounted? (--kubelet-root-dir names the one that has it)")]
    NoRegistry {
        /// The directory.
        path: PathBuf,
    },
}
