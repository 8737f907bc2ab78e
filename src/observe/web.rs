//! HTTP for a few readers: read-only pages on a unix socket or an address.
//!
//! Each listener has places of its own, so that a crowd at the address keeps nobody from the socket. A connection carries one
//! request, and ends after `LONGEST` whatever its peer does.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Most connections at a time on one listener.
const PLACES: usize = 16;
/// How long a request line with its headers may take.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may take.
const LONGEST: Duration = Duration::from_secs(10);
/// Most bytes of a request that are read; the least that hyper allows.
const BUFFER: usize = 8 * 1024;
/// Most headers of a request.
const HEADERS: usize = 64;
/// How long to wait where an address cannot be had (an instance that is being replaced may still have it), or where no file
/// descriptor is left.
const AGAIN: Duration = Duration::from_secs(5);

/// Who answers.
pub trait Pages: Send + Sync + 'static {
    /// The answer to GET.
    fn answer(&self, path: &str) -> impl Future<Output = Answer> + Send;
}

/// An answer.
pub type Answer = Response<Full<Bytes>>;

/// Plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Serves on a unix socket, for ever.
pub async fn serve_socket(listener: UnixListener, pages: impl Pages) {
    serve(Listener::Unix(listener), pages).await;
}

/// Serves on an address, for ever. Where it cannot be had, tries again and again, and says so.
pub async fn serve_address(wanted: SocketAddr, pages: impl Pages, state: watch::Sender<String>) {
    loop {
        let bound = match listen(wanted).await {
            Ok(listener) => listener.local_addr().map(|address| (listener, address)),
            Err(error) => Err(error),
        };
        match bound {
            Ok((listener, address)) => {
                tracing::info!(%address, "pages and metrics");
                state.send_replace(address.to_string());
                return serve(Listener::Tcp(listener), pages).await;
            }
            Err(error) => {
                let text = format!("{wanted}: {error}; trying again");
                if *state.borrow() != text {
                    tracing::warn!(address = %wanted, %error, "cannot listen there yet");
                    state.send_replace(text);
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// Every address of a node without IPv6 is every one of IPv4.
async fn listen(wanted: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(wanted).await {
        Err(error)
            if wanted.ip() == Ipv6Addr::UNSPECIFIED
                && error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, wanted.port())).await
        }
        bound => bound,
    }
}

async fn serve(listener: Listener, pages: impl Pages) {
    let pages = Arc::new(pages);
    let places = Arc::new(Semaphore::new(PLACES));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // Whoever comes when all places are taken waits in the kernel's queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let pages = Arc::clone(&pages);
        let accepted = match &listener {
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                connections.spawn(async move {
                    converse(stream, pages).await;
                    drop(place);
                })
            }),
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                connections.spawn(async move {
                    converse(stream, pages).await;
                    drop(place);
                })
            }),
        };
        if let Err(error) = accepted {
            tracing::debug!(%error, "cannot accept a connection");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, pages: Arc<impl Pages>) {
    let service = service_fn(|request: Request<Incoming>| {
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(answer(&*pages, request.method(), request.uri().path()).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .max_headers(HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(LONGEST, connection).await {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn answer(pages: &impl Pages, method: &Method, path: &str) -> Answer {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    // hyper leaves the body of an answer to HEAD out.
    pages.answer(path).await
}

/// An answer that nobody keeps.
pub fn response(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The page has a style of its own, and nothing else may be loaded, run, framed or sent.
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
        ),
    );
    response
}
