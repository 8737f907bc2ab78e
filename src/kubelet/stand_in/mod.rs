//! A small kubelet of our own over real sockets, for `pcidp demo` and for tests.
//!
//! It does what the kubelet's device manager does on the wire, its oddities included
//! (<https://github.com/kubernetes/kubernetes/tree/v1.34.4/pkg/kubelet/cm/devicemanager/plugin/v1beta1>):
//! it dials back inside Register; a later registration of a resource takes the place of an earlier one, whose stream
//! stays open; when *any* stream of a resource ends, it closes the connection that stands under the resource's name,
//! and counts the resource's devices as unhealthy. (Later kubelets tell connections apart by their socket as well, so
//! that this is the harder one to live with.)

mod device_manager;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use self::device_manager::DeviceManager;
pub use self::state::{Listed, Registered, Resource, State};
use super::api::deviceplugin as api;
use super::api::deviceplugin::device_plugin_client::DevicePluginClient;
use super::api::deviceplugin::registration_server::RegistrationServer;
use super::connection::{ConnectError, Connection};
use super::register::KUBELET_SOCKET;
use super::server;
use super::socket::{BindError, OwnSocket};
use super::watch::Sockets;

/// How long [`StandIn::eventually`] waits.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A kubelet's device manager. Dropping it stops it and removes its socket.
#[derive(Debug)]
pub struct StandIn {
    directory: PathBuf,
    manager: Arc<DeviceManager>,
    running: Option<JoinHandle<()>>,
    socket: OwnSocket,
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No plugin is connected for the resource.
    #[error("no plugin is connected for {resource}")]
    NotConnected {
        /// `prefix/name`.
        resource: String,
    },
    /// There are not enough free devices.
    #[error("{wanted} devices of {resource} are wanted and {free} are free")]
    TooFew {
        /// `prefix/name`.
        resource: String,
        /// How many were wanted.
        wanted: usize,
        /// How many there are.
        free: usize,
    },
    /// The plugin says no.
    #[error("the plugin said {:?}: {}", .0.code(), .0.message())]
    Plugin(#[from] Status),
    /// The plugin's socket cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl CallError {
    /// The plugin's code.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Plugin(status) => Some(status.code()),
            _ => None,
        }
    }
}

/// Something that was awaited did not happen.
#[derive(Debug, thiserror::Error)]
#[error("not seen within {PATIENCE:?}: {what}; the state is {state:#?}")]
pub struct NotSeen {
    what: String,
    state: Box<State>,
}

impl StandIn {
    /// Starts as a kubelet does: removes every socket in the directory, and listens on `kubelet.sock`.
    ///
    /// # Errors
    /// When its socket cannot be bound.
    pub async fn start(directory: &Path) -> Result<Self, BindError> {
        let manager = Arc::new(DeviceManager::new(directory));
        let (socket, running) = listen(directory, &manager)?;
        Ok(Self { directory: directory.to_owned(), manager, running: Some(running), socket })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// Dies: connections break, and the socket's file stays.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            // Its listener and connections are closed when it has ended; that it was aborted is no news.
            let _ = running.await;
        }
        self.manager.disconnect_all();
    }

    /// Stops, and starts again with a new `kubelet.sock`; the history stays, and so do held devices.
    ///
    /// # Errors
    /// When the new socket cannot be bound.
    pub async fn restart(&mut self) -> Result<(), BindError> {
        self.stop().await;
        // The old socket is still open here, so that the new one is another inode for certain.
        let (socket, running) = listen(&self.directory, &self.manager)?;
        self.socket = socket;
        self.running = Some(running);
        Ok(())
    }

    /// Refuses registrations with these words, or accepts them again.
    pub fn refuse(&self, message: Option<&str>) {
        self.manager.set_manners(|manners| manners.refusal = message.map(ToOwned::to_owned));
    }

    /// Accepts registrations but never opens a stream, or behaves again.
    pub fn ignore_streams(&self, ignore: bool) {
        self.manager.set_manners(|manners| manners.ignore_streams = ignore);
    }

    /// Loses the connection to the plugin of a resource, without a word.
    pub fn drop_stream(&self, resource: &str) {
        self.manager.disconnect(resource);
    }

    /// Finds a socket in `plugins_registry`, as the kubelet's plugin watcher does (with a valid authority).
    ///
    /// # Errors
    /// When the socket or the endpoint that it names cannot be reached.
    pub async fn discover(&self, socket: &Path) -> Result<(), CallError> {
        self.manager.discover(socket).await
    }

    /// What it has seen.
    pub fn state(&self) -> State {
        self.manager.state.borrow().clone()
    }

    /// What it sees.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        self.manager.state.subscribe()
    }

    /// Waits until what it has seen meets a condition; in real time, since sockets do not know a paused clock.
    ///
    /// # Errors
    /// When that does not happen within [`PATIENCE`].
    pub async fn eventually(
        &self,
        what: &str,
        condition: impl FnMut(&State) -> bool,
    ) -> Result<State, NotSeen> {
        let mut states = self.subscribe();
        let seen = tokio::time::timeout(PATIENCE, states.wait_for(condition)).await;
        match seen {
            Ok(Ok(state)) => Ok(state.clone()),
            _ => Err(NotSeen { what: what.to_owned(), state: Box::new(self.state()) }),
        }
    }

    /// Allocates devices to the containers of a pod, one list of ids a container; they are held afterwards.
    ///
    /// # Errors
    /// When no plugin is connected, or it refuses.
    pub async fn allocate(
        &self,
        resource: &str,
        containers: &[Vec<String>],
    ) -> Result<Vec<api::ContainerAllocateResponse>, CallError> {
        let request = api::AllocateRequest {
            container_requests: containers
                .iter()
                .map(|ids| api::ContainerAllocateRequest { devices_ids: ids.clone() })
                .collect(),
        };
        let answer = self.plugin(resource)?.allocate(request).await?.into_inner();
        self.manager.update(resource, |resource| {
            resource.held.extend(containers.iter().flatten().cloned());
        });
        Ok(answer.container_responses)
    }

    /// Allocates `count` free devices to one container; the plugin chooses where it wants to.
    ///
    /// # Errors
    /// When there are too few, no plugin is connected, or it refuses.
    pub async fn allocate_n(
        &self,
        resource: &str,
        count: usize,
    ) -> Result<(Vec<String>, api::ContainerAllocateResponse), CallError> {
        let known = self.state().resource(resource);
        let mut ids = known.free();
        if ids.len() < count {
            return Err(CallError::TooFew { resource: resource.to_owned(), wanted: count, free: ids.len() });
        }
        if known.options.preferred_allocation {
            ids = self.preferred(resource, &ids, &[], count).await?;
        }
        ids.truncate(count);
        let answers = self.allocate(resource, std::slice::from_ref(&ids)).await?;
        Ok((ids, answers.into_iter().next().unwrap_or_default()))
    }

    /// Takes devices back from containers that ended.
    pub fn free(&self, resource: &str, ids: &[String]) {
        self.manager.update(resource, |resource| resource.held.retain(|id| !ids.contains(id)));
    }

    /// Asks the plugin which devices to take.
    ///
    /// # Errors
    /// When no plugin is connected, or it refuses.
    pub async fn preferred(
        &self,
        resource: &str,
        available: &[String],
        must_include: &[String],
        size: usize,
    ) -> Result<Vec<String>, CallError> {
        let request = api::PreferredAllocationRequest {
            container_requests: vec![api::ContainerPreferredAllocationRequest {
                available_device_i_ds: available.to_vec(),
                must_include_device_i_ds: must_include.to_vec(),
                allocation_size: i32::try_from(size).unwrap_or(i32::MAX),
            }],
        };
        let answer = self.plugin(resource)?.get_preferred_allocation(request).await?;
        let answer = answer.into_inner().container_responses.into_iter().next();
        Ok(answer.map(|answer| answer.device_i_ds).unwrap_or_default())
    }

    /// Tells the plugin that a container is about to start.
    ///
    /// # Errors
    /// When no plugin is connected, or it refuses.
    pub async fn pre_start(&self, resource: &str, ids: &[String]) -> Result<(), CallError> {
        let request = api::PreStartContainerRequest { devices_ids: ids.to_vec() };
        self.plugin(resource)?.pre_start_container(request).await?;
        Ok(())
    }

    fn plugin(&self, resource: &str) -> Result<DevicePluginClient<Connection>, CallError> {
        let connection = self.manager.connection(resource);
        let connection =
            connection.ok_or_else(|| CallError::NotConnected { resource: resource.to_owned() })?;
        Ok(DevicePluginClient::new(connection))
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
        }
        self.manager.disconnect_all();
    }
}

fn listen(directory: &Path, manager: &Arc<DeviceManager>) -> Result<(OwnSocket, JoinHandle<()>), BindError> {
    let sockets = Sockets::read(directory).unwrap_or_default();
    for name in sockets.names() {
        let path = directory.join(name);
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove a socket");
        }
    }
    let (socket, listener) = OwnSocket::bind(&directory.join(KUBELET_SOCKET))?;
    let service = RegistrationServer::new(Arc::clone(manager));
    let running = tokio::spawn(server::serve(listener, service, std::future::pending()));
    Ok((socket, running))
}
