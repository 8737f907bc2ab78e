//! A pool's socket and what serves on it.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::post::Post;
use super::{Event, PoolService};
use crate::kubelet::{self, BindError, DeviceList, Instance, OwnSocket, Place, StreamEvent};
use crate::model::ResourceName;

/// An endpoint that is being served.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// Removed from the directory when it is dropped.
    pub(super) socket: OwnSocket,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    forwarding: JoinHandle<()>,
}

impl Endpoint {
    /// Makes a socket and serves on it; stream events go to the daemon under the pool's position.
    pub(super) fn start(
        directory: &Path,
        resource: &ResourceName,
        instance: &Instance,
        service: Arc<PoolService>,
        list: watch::Receiver<DeviceList>,
        (pool, events): (usize, Post),
    ) -> Result<Self, BindError> {
        let path = kubelet::socket_path(directory, Place::DevicePlugins, resource, instance)?;
        let (socket, listener) = OwnSocket::bind(&path)?;
        let (stop, stopped) = oneshot::channel();
        let (stream_events, mut streams) = mpsc::unbounded_channel();
        let serving = tokio::spawn(kubelet::serve(listener, service, list, stream_events, async {
            // A dropped sender means stop too.
            let _ = stopped.await;
        }));
        let forwarding = tokio::spawn(async move {
            while let Some(event) = streams.recv().await {
                let event = match event {
                    StreamEvent::Opened { open } => Event::StreamOpened(pool, open),
                    StreamEvent::Closed { open } => Event::StreamClosed(pool, open),
                };
                events.send(event);
            }
        });
        Ok(Self { socket, stop, serving, forwarding })
    }

    /// Ends the streams, lets calls in flight finish, and removes the socket.
    pub(super) async fn stop(self) {
        self.forwarding.abort();
        drop(self.stop);
        if let Err(error) = self.serving.await {
            tracing::warn!(path = %self.socket.path().display(), %error, "an endpoint did not end well");
        }
    }
}
