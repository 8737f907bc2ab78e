//! Registration of a pool at the kubelet's socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::Code;

use super::api::deviceplugin::RegisterRequest;
use super::api::deviceplugin::registration_client::RegistrationClient;
use super::connection::{ConnectError, Connection};
use super::pool::PluginOptions;
use super::watch::SocketIdentity;
use crate::model::ResourceName;

/// File name of the kubelet's socket
/// (<https://github.com/kubernetes/kubelet/blob/v0.34.4/pkg/apis/deviceplugin/v1beta1/constants.go>).
pub const KUBELET_SOCKET: &str = "kubelet.sock";

/// The only version of the API that every kubelet speaks.
pub const API_VERSION: &str = "v1beta1";

/// What the kubelet is told of an endpoint.
#[derive(Debug, Clone)]
pub struct Registration<'a> {
    /// File name of the endpoint's socket: the kubelet joins it with its own directory
    /// (<https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go>).
    pub endpoint: &'a str,
    /// The extended resource.
    pub resource: &'a ResourceName,
    /// The same as the pool's.
    pub options: PluginOptions,
}

/// Why a pool is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Nothing listens at the kubelet's socket, or it may not be used.
    #[error("cannot register {resource}: {source}{}", hint(&source.source))]
    Connect {
        /// `prefix/name`.
        resource: String,
        /// Names the socket.
        source: ConnectError,
    },
    /// The kubelet does not answer.
    #[error("cannot register {resource}: {} did not answer within {limit:?}", socket.display())]
    TimedOut {
        /// `prefix/name`.
        resource: String,
        /// The kubelet's socket.
        socket: PathBuf,
        /// How long it was waited.
        limit: Duration,
    },
    /// The kubelet says no, or the connection broke.
    #[error("cannot register {resource}: {} said {code:?}: {message}", socket.display())]
    Refused {
        /// `prefix/name`.
        resource: String,
        /// The kubelet's socket.
        socket: PathBuf,
        /// The gRPC code.
        code: Code,
        /// The kubelet's own words.
        message: String,
    },
}

fn hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied => super::socket::SELINUX_HINT,
        std::io::ErrorKind::NotFound => "; is the kubelet running, and its device-plugins directory mounted?",
        std::io::ErrorKind::ConnectionRefused => "; is the kubelet running?",
        _ => "",
    }
}

/// Registers an endpoint that is already served: the kubelet dials back before it answers.
///
/// Returns the identity that the kubelet's socket had just before: when it has another one later, another kubelet
/// listens there, and the pool has to register again.
///
/// # Errors
/// When the kubelet cannot be reached, refuses, or does not answer within `limit` (it waits up to 10 s for the
/// endpoint itself).
pub async fn register(
    kubelet: &Path,
    registration: &Registration<'_>,
    limit: Duration,
) -> Result<Option<SocketIdentity>, RegisterError> {
    let identity = SocketIdentity::of(kubelet);
    let resource = registration.resource.to_string();
    let request = RegisterRequest {
        version: API_VERSION.to_owned(),
        endpoint: registration.endpoint.to_owned(),
        resource_name: resource.clone(),
        options: Some(registration.options.into()),
    };
    let talk = async {
        let connection = Connection::open(kubelet)
            .await
            .map_err(|source| RegisterError::Connect { resource: resource.clone(), source })?;
        let answer = RegistrationClient::new(connection).register(request).await;
        answer.map_err(|status| RegisterError::Refused {
            resource: resource.clone(),
            socket: kubelet.to_owned(),
            code: status.code(),
            message: status.message().to_owned(),
        })
    };
    match tokio::time::timeout(limit, talk).await {
        Ok(answer) => answer.map(|_| identity),
        Err(_) => {
            Err(RegisterError::TimedOut { resource: resource.clone(), socket: kubelet.to_owned(), limit })
        }
    }
}
