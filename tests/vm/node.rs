//! A node: the real `pcidp` as a process, and the small kubelet.

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use pcidp::kubelet::api::deviceplugin::ContainerAllocateResponse;
use pcidp::kubelet::stand_in::{CallError, StandIn};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::machine::pcidp_command;

/// Longer than the pause between two looks at the machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Of all resources in scenarios.
const PREFIX: &str = "example.com";

/// `pcidp run` with its kubelet. Dropping it ends both, and tells what `pcidp` said where the scenario has failed.
pub(crate) struct Node {
    runtime: Runtime,
    kubelet: StandIn,
    plugin: Child,
    directory: TempDir,
}

impl Node {
    /// Starts with these pools: resource names, and the rest of each pool as JSON.
    pub(crate) fn start(pools: &[(&str, &str)]) -> Self {
        let pools: Vec<String> =
            pools.iter().map(|(name, rest)| format!(r#"{{"resourceName": "{name}", {rest}}}"#)).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let config = format!(r#"{{"resourceList": [{}]}}"#, pools.join(", "));
        fs::write(path("config.json"), config).unwrap();
        fs::create_dir(path("plugins")).unwrap();

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kubelet = runtime.block_on(StandIn::start(&path("plugins"))).unwrap();
        let log = File::create(path("log")).unwrap();
        let plugin = pcidp_command()
            .args(["run", "--strict", "--resource-prefix", PREFIX])
            .arg("--config-file")
            .arg(path("config.json"))
            .arg("--device-plugin-dir")
            .arg(path("plugins"))
            .arg("--device-info-dir")
            .arg(path("information"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { runtime, kubelet, plugin, directory }
    }

    /// Waits until the kubelet counts exactly these devices of a resource as allocatable.
    pub(crate) fn offers(&self, resource: &str, devices: &[impl AsRef<str>]) {
        let mut wanted: Vec<&str> = devices.iter().map(AsRef::as_ref).collect();
        wanted.sort_unstable();
        let name = format!("{PREFIX}/{resource}");
        let mut states = self.kubelet.subscribe();
        let seen = self.runtime.block_on(async {
            let offered = states.wait_for(|state| {
                let resource = state.resource(&name);
                let mut offered: Vec<&str> = resource.healthy().map(|device| device.id.as_str()).collect();
                offered.sort_unstable();
                !resource.lists.is_empty() && offered == wanted
            });
            tokio::time::timeout(PATIENCE, offered).await.is_ok()
        });
        if !seen {
            let devices = self.kubelet.state().resource(&name).devices().to_vec();
            panic!("{name} should offer {wanted:?}, and the last list was {devices:#?}");
        }
    }

    /// How often a resource has been registered, and how many lists the kubelet has been told.
    pub(crate) fn told(&self, resource: &str) -> (usize, usize) {
        let resource = self.kubelet.state().resource(&format!("{PREFIX}/{resource}"));
        (resource.registrations.len(), resource.lists.len())
    }

    /// Which of the available devices a container should get.
    pub(crate) fn preferred(&self, resource: &str, available: &[&str], size: usize) -> Vec<String> {
        let available: Vec<String> = available.iter().map(|&id| id.to_owned()).collect();
        let name = format!("{PREFIX}/{resource}");
        self.runtime.block_on(self.kubelet.preferred(&name, &available, &[], size)).unwrap()
    }

    /// What the plugin has said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Allocates devices to one container.
    pub(crate) fn allocate(
        &self,
        resource: &str,
        devices: &[&str],
    ) -> Result<ContainerAllocateResponse, CallError> {
        let devices = devices.iter().map(|&id| id.to_owned()).collect();
        let name = format!("{PREFIX}/{resource}");
        let answers = self.runtime.block_on(self.kubelet.allocate(&name, &[devices]))?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.plugin.kill();
        let _ = self.plugin.wait();
        if thread::panicking() {
            println!("{}", fs::read_to_string(self.directory.path().join("log")).unwrap_or_default());
        }
    }
}

/// The host's path of the node that a container sees under this one.
pub(crate) fn node_of(answer: &ContainerAllocateResponse, container: &str) -> String {
    let node = answer.devices.iter().find(|node| node.container_path == container);
    let node = node.unwrap_or_else(|| panic!("no {container} in {:#?}", answer.devices));
    assert_eq!(node.permissions, "rw");
    node.host_path.clone()
}
