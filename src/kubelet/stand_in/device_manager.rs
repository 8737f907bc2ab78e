//! Registrations, and the connections that come of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};

use super::CallError;
use super::state::{Listed, Registered, Resource, State};
use crate::kubelet::api::deviceplugin as api;
use crate::kubelet::api::deviceplugin::device_plugin_client::DevicePluginClient;
use crate::kubelet::api::deviceplugin::registration_server::Registration;
use crate::kubelet::api::pluginregistration::registration_client::RegistrationClient;
use crate::kubelet::api::pluginregistration::{InfoRequest, RegistrationStatus};
use crate::kubelet::connection::Connection;
use crate::kubelet::register::API_VERSION;

/// How the stand-in misbehaves.
#[derive(Debug, Default)]
pub(super) struct Manners {
    pub(super) refusal: Option<String>,
    pub(super) ignore_streams: bool,
}

#[derive(Debug)]
pub(super) struct DeviceManager {
    directory: PathBuf,
    pub(super) state: watch::Sender<State>,
    manners: Mutex<Manners>,
    plugins: Mutex<Plugins>,
}

#[derive(Debug, Default)]
struct Plugins {
    /// The connection that stands under a resource's name.
    connections: BTreeMap<String, Connection>,
    /// One task for each open stream, also of connections that no longer stand under a name.
    streams: JoinSet<()>,
    /// Counts the lives of the stand-in: a registration that began in an earlier one has no effect.
    life: u64,
}

impl DeviceManager {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            state: watch::Sender::default(),
            manners: Mutex::default(),
            plugins: Mutex::default(),
        }
    }

    pub(super) fn set_manners(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut lock(&self.manners));
    }

    pub(super) fn update(&self, resource: &str, change: impl FnOnce(&mut Resource)) {
        self.state.send_modify(|state| change(state.resources.entry(resource.to_owned()).or_default()));
    }

    pub(super) fn connection(&self, resource: &str) -> Option<Connection> {
        lock(&self.plugins).connections.get(resource).cloned()
    }

    /// Closes first and marks then, as the kubelet does.
    pub(super) fn disconnect(&self, resource: &str) {
        let connection = lock(&self.plugins).connections.remove(resource);
        if let Some(connection) = connection {
            connection.close();
            self.update(resource, |resource| resource.connected = false);
        }
    }

    /// Ends this life: every connection and every stream.
    pub(super) fn disconnect_all(&self) {
        let names: Vec<_> = {
            let mut plugins = lock(&self.plugins);
            plugins.life += 1;
            plugins.streams.abort_all();
            plugins.connections.keys().cloned().collect()
        };
        for name in names {
            self.disconnect(&name);
        }
    }

    pub(super) async fn discover(self: &Arc<Self>, socket: &Path) -> Result<(), CallError> {
        let connection = Connection::open(socket).await?;
        let mut client = RegistrationClient::new(connection);
        let info = client.get_info(InfoRequest {}).await?.into_inner();
        let request = api::RegisterRequest {
            version: info.supported_versions.first().cloned().unwrap_or_default(),
            endpoint: info.endpoint,
            resource_name: info.name,
            options: None,
        };
        let accepted = self.accept(request).await;
        let status = RegistrationStatus {
            plugin_registered: accepted.is_ok(),
            error: accepted.as_ref().err().map(|status| status.message().to_owned()).unwrap_or_default(),
        };
        client.notify_registration_status(status).await?;
        Ok(accepted?)
    }

    async fn accept(self: &Arc<Self>, request: api::RegisterRequest) -> Result<(), Status> {
        let at = Instant::now();
        let life = lock(&self.plugins).life;
        let name = request.resource_name.clone();
        let ignore_streams = {
            let manners = lock(&self.manners);
            if let Some(message) = &manners.refusal {
                self.update(&name, |resource| resource.refused += 1);
                return Err(Status::unknown(message.clone()));
            }
            manners.ignore_streams
        };
        if request.version != API_VERSION {
            self.update(&name, |resource| resource.refused += 1);
            return Err(Status::unknown(format!(
                "requested API version {:?} is not supported, only {API_VERSION:?} is",
                request.version
            )));
        }
        // An absolute path, as watcher mode has it, replaces the directory.
        let connection = Connection::open(&self.directory.join(&request.endpoint))
            .await
            .map_err(|error| Status::unknown(error.to_string()))?;
        let mut client = DevicePluginClient::new(connection.clone());
        let options = client.get_device_plugin_options(api::Empty {}).await?.into_inner();
        let mut plugins = lock(&self.plugins);
        if plugins.life != life {
            return Err(Status::unavailable("stopped"));
        }
        // An earlier connection lives on as long as its own stream.
        plugins.connections.insert(name.clone(), connection);
        self.update(&name, |resource| {
            resource.registrations.push(Registered { at, request });
            resource.options = options.into();
            resource.connected = true;
        });
        while plugins.streams.try_join_next().is_some() {}
        if !ignore_streams {
            plugins.streams.spawn(listen(Arc::clone(self), name, client));
        }
        Ok(())
    }
}

/// Takes lists until the stream ends, and then disconnects whoever stands under the name.
async fn listen(manager: Arc<DeviceManager>, name: String, mut client: DevicePluginClient<Connection>) {
    if let Ok(answer) = client.list_and_watch(api::Empty {}).await {
        let mut lists = answer.into_inner();
        while let Ok(Some(list)) = lists.message().await {
            let devices = list.devices.into_iter().map(Into::into).collect();
            let at = Instant::now();
            manager.update(&name, |resource| resource.lists.push(Listed { at, devices }));
        }
    }
    manager.disconnect(&name);
}

#[tonic::async_trait]
impl Registration for Arc<DeviceManager> {
    async fn register(&self, request: Request<api::RegisterRequest>) -> Result<Response<api::Empty>, Status> {
        self.accept(request.into_inner()).await?;
        Ok(Response::new(api::Empty {}))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
