//! A pool with nothing behind it, and its endpoint.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::kubelet::api::deviceplugin::device_plugin_client::DevicePluginClient;
use crate::kubelet::{
    Advertised, Connection, DeviceList, OwnSocket, PluginOptions, Pool, Refusal, StreamEvent, serve,
};
use crate::model::{DeviceNode, Handout, Mount, ResourceName};

/// More than anything here takes.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

pub(super) const RESOURCE: &str = "example.com/probe";

pub(super) fn resource() -> ResourceName {
    ResourceName::new("example.com", "probe").unwrap()
}

pub(super) fn ids(text: &str) -> Vec<String> {
    text.split_whitespace().map(ToOwned::to_owned).collect()
}

/// `a b!` is two devices, of which the second is unhealthy.
pub(super) fn devices(text: &str) -> DeviceList {
    text.split_whitespace()
        .map(|id| Advertised {
            id: id.trim_end_matches('!').to_owned(),
            healthy: !id.ends_with('!'),
            numa_node: (id == "a").then_some(1),
        })
        .collect()
}

/// Has the devices `a`, `b`, `c`; `sick`, `bare` and `torn` fail each in its own way.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) options: PluginOptions,
    /// When there is one: says that a call has come, and waits for the word to go on.
    pub(super) gate: Mutex<Option<(oneshot::Sender<()>, std::sync::mpsc::Receiver<()>)>>,
}

fn check(ids: &[String]) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for id in ids {
        let id = id.clone();
        if !seen.insert(id.clone()) {
            return Err(Refusal::Repeated { id });
        }
        match id.as_str() {
            "a" | "b" | "c" => {}
            "sick" => {
                let reason = "the link is down".to_owned();
                return Err(Refusal::Unhealthy { id, reason });
            }
            "bare" => {
                let reason = "/dev/vfio/7 is missing".to_owned();
                return Err(Refusal::NotReady { id, reason });
            }
            "torn" => {
                let reason = "/sys/x: Input/output error".to_owned();
                return Err(Refusal::Failed { id, reason });
            }
            _ => {
                let resource = RESOURCE.to_owned();
                return Err(Refusal::Unknown { id, resource });
            }
        }
    }
    Ok(())
}

impl Pool for Shelf {
    fn options(&self) -> PluginOptions {
        self.options
    }

    fn allocate(&self, containers: &[Vec<String>]) -> Result<Vec<Handout>, Refusal> {
        if let Some((came, go_on)) = self.gate.lock().unwrap().take() {
            came.send(()).unwrap();
            go_on.recv().unwrap();
        }
        let handout = |ids: &Vec<String>| {
            check(ids)?;
            Ok(Handout {
                variables: [("IDS".to_owned(), ids.join(","))].into(),
                nodes: ids.iter().map(|id| DeviceNode::same(format!("/dev/{id}"))).collect(),
                mounts: vec![Mount { host: "/host".to_owned(), container: "/container".to_owned() }],
                uacce_links: Default::default(),
                cdi_devices: ids.iter().map(|id| format!("example.com/probe={id}")).collect(),
                annotations: [("key".to_owned(), "value".to_owned())].into(),
                files: Vec::new(),
            })
        };
        containers.iter().map(handout).collect()
    }

    fn prefer(
        &self,
        available: &[String],
        must_include: &[String],
        size: usize,
    ) -> Result<Vec<String>, Refusal> {
        let rest = available.iter().rev().filter(|id| !must_include.contains(id));
        Ok(must_include.iter().chain(rest).take(size).cloned().collect())
    }

    fn pre_start(&self, ids: &[String]) -> Result<(), Refusal> {
        check(ids)
    }
}

/// A served pool.
pub(super) struct Served {
    pub(super) path: PathBuf,
    pub(super) list: watch::Sender<DeviceList>,
    pub(super) events: mpsc::UnboundedReceiver<StreamEvent>,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) ended: JoinHandle<()>,
    pub(super) socket: OwnSocket,
}

impl Served {
    pub(super) fn start(path: PathBuf, shelf: Shelf, list: &str) -> Self {
        let (socket, listener) = OwnSocket::bind(&path).unwrap();
        let (list, lists) = watch::channel(devices(list));
        let (sender, events) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let ended = tokio::spawn(serve(listener, Arc::new(shelf), lists, sender, shutdown));
        Self { path, list, events, stop, ended, socket }
    }

    pub(super) async fn client(&self) -> DevicePluginClient<Connection> {
        DevicePluginClient::new(Connection::open(&self.path).await.unwrap())
    }

    pub(super) async fn event(&mut self) -> StreamEvent {
        within(self.events.recv()).await.unwrap()
    }
}

/// Awaits, but not for ever.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it did not happen in time")
}
