//! Watcher mode: a socket in `plugins_registry` that tells the kubelet who serves what, and where.

use std::future::Future;
use std::path::Path;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use super::api::pluginregistration as api;
use super::api::pluginregistration::registration_server::{Registration, RegistrationServer};
use super::register::API_VERSION;
use super::server;
use crate::model::ResourceName;

/// What the kubelet made of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The pool is registered.
    Registered,
    /// It is not.
    Refused {
        /// The kubelet's words.
        reason: String,
    },
}

/// Answers the kubelet's plugin watcher until `shutdown` is done.
///
/// `endpoint` is the full path, as the *kubelet* sees it, of the socket that [`super::serve`] serves. The words are
/// those of <https://github.com/kubernetes/kubelet/blob/v0.34.4/pkg/apis/pluginregistration/v1/constants.go>.
/// `listener` has to be bound at a [`super::Place::PluginsRegistry`] path.
pub async fn serve_registry(
    listener: UnixListener,
    resource: &ResourceName,
    endpoint: &Path,
    verdicts: mpsc::UnboundedSender<Verdict>,
    shutdown: impl Future<Output = ()>,
) {
    let registry = Registry {
        info: api::PluginInfo {
            r#type: "DevicePlugin".to_owned(),
            name: resource.to_string(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: vec![API_VERSION.to_owned()],
        },
        verdicts,
    };
    server::serve(listener, RegistrationServer::new(registry), shutdown).await;
}

struct Registry {
    info: api::PluginInfo,
    verdicts: mpsc::UnboundedSender<Verdict>,
}

#[tonic::async_trait]
impl Registration for Registry {
    async fn get_info(&self, _: Request<api::InfoRequest>) -> Result<Response<api::PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<api::RegistrationStatus>,
    ) -> Result<Response<api::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let verdict = if status.plugin_registered {
            Verdict::Registered
        } else {
            Verdict::Refused { reason: status.error }
        };
        // Nobody listens any more when the daemon is gone; then nobody needs to know.
        let _ = self.verdicts.send(verdict);
        Ok(Response::new(api::RegistrationStatusResponse {}))
    }
}
