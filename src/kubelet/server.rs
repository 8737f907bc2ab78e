//! HTTP/2 over a unix listener, for one gRPC service.
//!
//! Without tonic's own transport: that one needs a router and keeps larger buffers for each connection.
//!
//! ```text
//!  serving ── shutdown ──▶ farewell ── every connection ended, or 800 ms ──▶ done
//!  accepts                 accepts nobody; calls in flight go on
//! ```

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::body::Body;
use tower::Service;

/// How long a stopping server waits for calls in flight, and for peers that do not hang up.
pub(super) const FAREWELL: Duration = Duration::from_millis(800);

/// How long a server waits before it accepts again when the process has no file descriptor left.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// Flow-control window of a connection and of a stream; a request of the kubelet is a few kilobytes.
const WINDOW: u32 = 64 * 1024;

/// Most bytes that wait in a stream's send buffer.
const SEND_BUFFER: usize = 64 * 1024;

/// Most calls at a time on one connection; the kubelet makes two or three.
const MOST_STREAMS: u32 = 128;

/// Serves until `shutdown` is done, then lets calls in flight finish, for [`FAREWELL`] at most.
///
/// Whoever keeps a stream open has to end it at shutdown.
pub(super) async fn serve<S>(listener: UnixListener, service: S, shutdown: impl Future<Output = ()>)
where
    S: Service<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, service.clone(), stopped.clone()));
                }
                Err(error) => refuse_for_now(&error).await,
            },
        }
    }
    drop(listener);
    drop(stopped);
    drop(stop);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(FAREWELL, all).await.is_err() {
        tracing::warn!(connections = connections.len(), "closed connections that were still in use");
    }
}

async fn refuse_for_now(error: &io::Error) {
    // Anything but a lack of descriptors or memory concerns one connection only.
    if error.raw_os_error().is_some_and(|code| {
        [nix::libc::EMFILE, nix::libc::ENFILE, nix::libc::ENOBUFS, nix::libc::ENOMEM].contains(&code)
    }) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
    }
}

async fn converse<S>(stream: UnixStream, service: S, mut stopped: watch::Receiver<()>)
where
    S: Service<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let connection = http2::Builder::new(TokioExecutor::new())
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_concurrent_streams(MOST_STREAMS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
