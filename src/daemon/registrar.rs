//! How the kubelet learns of a pool: directly on its socket, or by a socket of ours that it finds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Event;
use super::post::Post;
use crate::kubelet::{
    self, Instance, KUBELET_SOCKET, OwnSocket, Place, PluginOptions, Refusal, Registration, Verdict,
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
    verdicts: Verdicts,
}

/// What the kubelet said of pools. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdicts {
    pub(super) metrics: Metrics,
    /// Of those pools that it does not have, the last error: each is told once.
    refusals: Arc<Mutex<BTreeMap<ResourceName, String>>>,
}

impl Verdicts {
    fn refusals(&self) -> MutexGuard<'_, BTreeMap<ResourceName, String>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A registration has ended.
    fn take(&self, resource: &ResourceName, refusal: Option<String>) {
        self.metrics.registration(resource, refusal.is_none());
        match refusal {
            None => {
                self.refusals().remove(resource);
                tracing::info!(%resource, "registered");
            }
            Some(error) if self.refusals().get(resource) == Some(&error) => {
                tracing::debug!(%resource, error, "not registered yet");
            }
            Some(error) => {
                tracing::warn!(%resource, error, "not registered; trying again");
                self.refusals().insert(resource.clone(), error);
            }
        }
    }

    /// A pool has no socket, so that it cannot even be registered.
    pub(super) fn unbound(&self, resource: &ResourceName, error: String) {
        if self.refusals().get(resource) != Some(&error) {
            tracing::error!(%resource, error, "cannot serve; trying again");
            self.refusals().insert(resource.clone(), error);
        }
    }

    /// Why a pool is not registered.
    pub(super) fn refusal(&self, resource: &ResourceName) -> Option<String> {
        self.refusals().get(resource).cloned()
    }

    /// A pool is gone.
    pub(super) fn forget(&self, resource: &ResourceName) {
        self.metrics.forget(resource, &Refusal::WORDS);
        self.refusals().remove(resource);
    }
}

/// What tells the kubelet of a pool; dropping it ends that.
#[derive(Debug)]
pub(super) struct Telling {
    /// The socket that the kubelet has to find, where it has to.
    pub(super) socket: Option<OwnSocket>,
    task: JoinHandle<()>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Registrar {
    pub(super) fn new(manner: Manner, device_plugins: &Path, events: Post, verdicts: Verdicts) -> Self {
        let kubelet = device_plugins.join(KUBELET_SOCKET);
        Self { manner, kubelet, turns: Arc::new(Semaphore::new(REGISTRATIONS)), events, verdicts }
    }

    /// Registers after a moment.
    pub(super) fn register(&self, told: Told, after: Duration, instance: &Instance) -> Option<Telling> {
        match &self.manner {
            Manner::Direct => Some(Telling { socket: None, task: self.ask(told, after) }),
            Manner::Watcher(directory) => match self.announce(directory, &told, instance) {
                Ok(telling) => Some(telling),
                Err(error) => {
                    self.verdicts.unbound(&told.resource, error.to_string());
                    let answer = Event::Answered { pool: told.pool, epoch: told.epoch, accepted: None };
                    self.events.send(answer);
                    None
                }
            },
        }
    }

    fn ask(&self, told: Told, after: Duration) -> JoinHandle<()> {
        let (socket, turns, events) = (self.kubelet.clone(), Arc::clone(&self.turns), self.events.clone());
        let verdicts = self.verdicts.clone();
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
                    verdicts.take(&resource, None);
                    Some(identity)
                }
                Err(error) => {
                    verdicts.take(&resource, Some(error.to_string()));
                    None
                }
            };
            events.send(Event::Answered { pool, epoch, accepted });
        })
    }

    /// Makes a socket for the kubelet to find. It comes back to it when it starts anew, so every verdict counts.
    fn announce(
        &self,
        directory: &Path,
        told: &Told,
        instance: &Instance,
    ) -> Result<Telling, kubelet::BindError> {
        let path = kubelet::socket_path(directory, Place::PluginsRegistry, &told.resource, instance)?;
        let (socket, listener) = OwnSocket::bind(&path)?;
        let (verdicts, mut heard) = mpsc::unbounded_channel();
        let told_of = self.verdicts.clone();
        let (events, Told { pool, epoch, resource, endpoint, .. }) = (self.events.clone(), told.clone());
        tracing::info!(%resource, socket = %path.display(), "to be found by the kubelet");
        let task = tokio::spawn(async move {
            // It ends with the task.
            let serve =
                kubelet::serve_registry(listener, &resource, &endpoint, verdicts, std::future::pending());
            let listen = async {
                while let Some(verdict) = heard.recv().await {
                    let accepted = match verdict {
                        Verdict::Registered => {
                            told_of.take(&resource, None);
                            Some(None)
                        }
                        Verdict::Refused { reason } => {
                            told_of.take(&resource, Some(reason));
                            None
                        }
                    };
                    events.send(Event::Answered { pool, epoch, accepted });
                }
            };
            tokio::join!(serve, listen);
        });
        Ok(Telling { socket: Some(socket), task })
    }
}
