//! How the kubelet learns of a pool: directly on its socket, or by a socket of ours that it finds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Event;
use super::run::Post;
use crate::kubelet::{
    self, Instance, KUBELET_SOCKET, OwnSocket, Place, PluginOptions, Registration, Verdict,
};
use crate::model::ResourceName;
use crate::observe::Metrics;

/// The kubelet waits up to 10 s for the endpoint when it dials back inside Register.
const REGISTER_LIMIT: Duration = Duration::from_secs(12);

/// How many pools register at a time: each takes a connection with its buffers, and the kubelet takes them one by one.
const REGISTRATIONS: usize = 8;

/// How the kubelet learns of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// The pool registers on `kubelet.sock`.
    Direct,
    /// The kubelet finds a socket in this directory, its `plugins_registry`.
    Watcher(PathBuf),
}

/// What is to be told of a pool.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) pool: usize,
    pub(super) epoch: u64,
    pub(super) resource: ResourceName,
    pub(super) endpoint: PathBuf,
    pub(super) options: PluginOptions,
}

/// Tells the kubelet.
pub(super) struct Registrar {
    manner: Manner,
    kubelet: PathBuf,
    turns: Arc<Semaphore>,
    events: Post,
    metrics: Metrics,
}

/// A socket that the kubelet finds; dropping it takes it away.
#[derive(Debug)]
pub(super) struct Announcement {
    pub(super) socket: OwnSocket,
    _stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Registrar {
    pub(super) fn new(manner: Manner, device_plugins: &Path, events: Post, metrics: Metrics) -> Self {
        let kubelet = device_plugins.join(KUBELET_SOCKET);
        Self { manner, kubelet, turns: Arc::new(Semaphore::new(REGISTRATIONS)), events, metrics }
    }

    /// Registers after a moment. In watcher mode the answer holds the socket that the kubelet has to find.
    pub(super) fn register(&self, told: Told, after: Duration, instance: &Instance) -> Option<Announcement> {
        match &self.manner {
            Manner::Direct => {
                self.ask(told, after);
                None
            }
            Manner::Watcher(directory) => match self.announce(directory, &told, instance) {
                Ok(announcement) => Some(announcement),
                Err(error) => {
                    tracing::error!(resource = %told.resource, %error, "cannot be found by the kubelet");
                    let answer = Event::Answered { pool: told.pool, epoch: told.epoch, accepted: None };
                    self.events.send(answer);
                    None
                }
            },
        }
    }

    fn ask(&self, told: Told, after: Duration) {
        let (socket, turns, events) = (self.kubelet.clone(), Arc::clone(&self.turns), self.events.clone());
        let metrics = self.metrics.clone();
        tokio::spawn(async move {
            if !after.is_zero() {
                sleep(after).await;
            }
            let _turn = turns.acquire().await;
            let Told { pool, epoch, resource, endpoint, options } = told;
            let endpoint = endpoint.file_name().map(|name| name.to_string_lossy().into_owned());
            let endpoint = endpoint.unwrap_or_default();
            let registration = Registration { endpoint: &endpoint, resource: &resource, options };
            let accepted = match kubelet::register(&socket, &registration, REGISTER_LIMIT).await {
                Ok(identity) => {
                    tracing::info!(%resource, "registered");
                    Some(identity)
                }
                Err(error) => {
                    tracing::warn!(%resource, %error, "not registered");
                    None
                }
            };
            metrics.registration(&resource, accepted.is_some());
            events.send(Event::Answered { pool, epoch, accepted });
        });
    }

    /// Makes a socket for the kubelet to find. It comes back to it when it starts anew, so every verdict counts.
    fn announce(
        &self,
        directory: &Path,
        told: &Told,
        instance: &Instance,
    ) -> Result<Announcement, kubelet::BindError> {
        let path = kubelet::socket_path(directory, Place::PluginsRegistry, &told.resource, instance)?;
        let (socket, listener) = OwnSocket::bind(&path)?;
        let (verdicts, mut heard) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let metrics = self.metrics.clone();
        let (events, Told { pool, epoch, resource, endpoint, .. }) = (self.events.clone(), told.clone());
        tracing::info!(%resource, socket = %path.display(), "to be found by the kubelet");
        let serving = tokio::spawn(async move {
            let serve = kubelet::serve_registry(listener, &resource, &endpoint, verdicts, async {
                // A dropped sender means stop too.
                let _ = stopped.await;
            });
            let listen = async {
                while let Some(verdict) = heard.recv().await {
                    let accepted = match verdict {
                        Verdict::Registered => {
                            tracing::info!(%resource, "registered");
                            Some(None)
                        }
                        Verdict::Refused { reason } => {
                            tracing::warn!(%resource, reason, "not registered");
                            None
                        }
                    };
                    metrics.registration(&resource, accepted.is_some());
                    events.send(Event::Answered { pool, epoch, accepted });
                }
            };
            tokio::join!(serve, listen);
        });
        Ok(Announcement { socket, _stop: stop, serving })
    }
}
