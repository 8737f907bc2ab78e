//! A gRPC connection over a unix socket, as a client.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::{PathAndQuery, Scheme};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::UnixStream;
use tonic::body::Body;
use tower::Service;

/// A connection to a gRPC server, to be given to a generated client. It closes with its last clone.
///
/// `:authority` is `localhost`, as the kubelet itself has it
/// (<https://github.com/kubernetes/kubernetes/pull/112597>); a path there is refused by most HTTP/2 servers.
#[derive(Debug, Clone)]
pub struct Connection {
    requests: http2::SendRequest<Body>,
    socket: Arc<OwnedFd>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {}: {source}", path.display())]
pub struct ConnectError {
    /// The socket.
    pub path: PathBuf,
    /// What the system, or the peer's HTTP/2, said.
    #[source]
    pub source: io::Error,
}

impl Connection {
    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// When nothing listens there, or it does not speak HTTP/2.
    pub async fn open(path: &Path) -> Result<Self, ConnectError> {
        let failed = |source| ConnectError { path: path.to_owned(), source };
        let stream = UnixStream::connect(path).await.map_err(failed)?;
        let socket = Arc::new(stream.as_fd().try_clone_to_owned().map_err(failed)?);
        let (requests, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| failed(io::Error::other(error)))?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        Ok(Self { requests, socket })
    }

    /// Closes the connection at once, under all its clones, streams and calls.
    pub fn close(&self) {
        // hyper keeps the stream in a task of its own, so that it is closed from the outside.
        if let Err(error) = shutdown(self.socket.as_raw_fd(), Shutdown::Both) {
            tracing::debug!(%error, "a connection was closed already");
        }
    }
}

impl Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        *request.uri_mut() = at_localhost(request.uri());
        Box::pin(self.requests.send_request(request))
    }
}

fn at_localhost(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(http::uri::Authority::from_static("localhost"));
    parts.path_and_query = path.or(Some(PathAndQuery::from_static("/")));
    Uri::from_parts(parts).unwrap_or_default()
}
