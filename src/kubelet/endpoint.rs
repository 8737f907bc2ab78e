//! The endpoint of one pool: the DevicePlugin service on its own socket.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use super::api::deviceplugin as api;
use super::api::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use super::pool::{Advertised, DeviceList, Pool, Refusal};
use super::server;
use crate::model::Handout;

/// A ListAndWatch stream came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent {
    /// The kubelet (or another client) listens.
    Opened {
        /// How many streams are open now.
        open: usize,
    },
    /// It does no longer: it hung up, or the endpoint stops.
    Closed {
        /// How many streams are open now.
        open: usize,
    },
}

/// Serves a pool on `listener` until `shutdown` is done.
///
/// Each ListAndWatch stream gets the whole list at once and again whenever it is another one; a stream that falls
/// behind skips to the latest. At shutdown the streams end, calls in flight finish (for 800 ms at most), and the
/// function returns.
pub async fn serve(
    listener: UnixListener,
    pool: Arc<dyn Pool>,
    list: watch::Receiver<DeviceList>,
    events: mpsc::UnboundedSender<StreamEvent>,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(false);
    let endpoint =
        Endpoint { pool, list, stopped, open: Arc::new(OpenStreams { count: AtomicUsize::new(0), events }) };
    let shutdown = async {
        shutdown.await;
        stop.send_replace(true);
    };
    server::serve(listener, DevicePluginServer::new(endpoint), shutdown).await;
}

struct Endpoint {
    pool: Arc<dyn Pool>,
    list: watch::Receiver<DeviceList>,
    stopped: watch::Receiver<bool>,
    open: Arc<OpenStreams>,
}

#[tonic::async_trait]
impl DevicePlugin for Endpoint {
    type ListAndWatchStream = ListStream;

    async fn get_device_plugin_options(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(self.pool.options().into()))
    }

    async fn list_and_watch(&self, _: Request<api::Empty>) -> Result<Response<ListStream>, Status> {
        Ok(Response::new(ListStream {
            lists: WatchStream::new(self.list.clone()),
            stopped: WatchStream::new(self.stopped.clone()),
            sent: None,
            _guard: OpenStreams::enter(&self.open),
        }))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let containers = request.into_inner().container_requests;
        let answers = containers.iter().map(|container| prefer(self.pool.as_ref(), container));
        let container_responses = answers.collect::<Result<_, Refusal>>()?;
        Ok(Response::new(api::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let containers = request.into_inner().container_requests;
        let containers: Vec<_> = containers.into_iter().map(|container| container.devices_ids).collect();
        let asked = containers.len();
        let handouts = self.pool.allocate(&containers)?;
        if handouts.len() != asked {
            let given = handouts.len();
            return Err(Status::internal(format!("{given} answers were made for {asked} containers")));
        }
        Ok(Response::new(api::AllocateResponse {
            container_responses: handouts.into_iter().map(Into::into).collect(),
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        let ids = request.into_inner().devices_ids;
        self.pool.pre_start(&ids)?;
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}

fn prefer(
    pool: &dyn Pool,
    container: &api::ContainerPreferredAllocationRequest,
) -> Result<api::ContainerPreferredAllocationResponse, Refusal> {
    let size = usize::try_from(container.allocation_size).map_err(|_| Refusal::Impossible {
        reason: format!("{} devices are asked for", container.allocation_size),
    })?;
    let chosen = pool.prefer(&container.available_device_i_ds, &container.must_include_device_i_ds, size)?;
    Ok(api::ContainerPreferredAllocationResponse { device_i_ds: chosen })
}

impl From<Handout> for api::ContainerAllocateResponse {
    fn from(handout: Handout) -> Self {
        Self {
            envs: handout.variables,
            mounts: handout
                .mounts
                .into_iter()
                .map(|mount| api::Mount {
                    container_path: mount.container,
                    host_path: mount.host,
                    read_only: true,
                })
                .collect(),
            devices: handout
                .nodes
                .into_iter()
                .map(|node| api::DeviceSpec {
                    container_path: node.container,
                    host_path: node.host,
                    permissions: "rw".to_owned(),
                })
                .collect(),
            annotations: handout.annotations,
            cdi_devices: handout.cdi_devices.into_iter().map(|name| api::CdiDevice { name }).collect(),
        }
    }
}

impl From<&Advertised> for api::Device {
    /// The words are `Healthy` and `Unhealthy` of
    /// <https://github.com/kubernetes/kubelet/blob/v0.34.4/pkg/apis/deviceplugin/v1beta1/constants.go>.
    fn from(device: &Advertised) -> Self {
        Self {
            id: device.id.clone(),
            health: if device.healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
            topology: device
                .numa_node
                .map(|node| api::TopologyInfo { nodes: vec![api::NumaNode { id: i64::from(node) }] }),
        }
    }
}

/// Counts streams, and tells the daemon.
struct OpenStreams {
    count: AtomicUsize,
    events: mpsc::UnboundedSender<StreamEvent>,
}

impl OpenStreams {
    fn enter(this: &Arc<Self>) -> OpenStream {
        let open = this.count.fetch_add(1, Ordering::Relaxed) + 1;
        // Nobody listens any more when the daemon is gone; then nobody needs to know.
        let _ = this.events.send(StreamEvent::Opened { open });
        OpenStream(Arc::clone(this))
    }
}

struct OpenStream(Arc<OpenStreams>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let open = self.0.count.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
        let _ = self.0.events.send(StreamEvent::Closed { open });
    }
}

/// The latest list, whenever it differs from the one that was sent.
///
/// A list is taken from the channel only when the connection can send it, so nothing stale waits in between.
pub(super) struct ListStream {
    lists: WatchStream<DeviceList>,
    stopped: WatchStream<bool>,
    sent: Option<DeviceList>,
    _guard: OpenStream,
}

impl Stream for ListStream {
    type Item = Result<api::ListAndWatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while let Poll::Ready(stopped) = Pin::new(&mut self.stopped).poll_next(context) {
            if stopped != Some(false) {
                return Poll::Ready(None);
            }
        }
        loop {
            match Pin::new(&mut self.lists).poll_next(context) {
                Poll::Ready(Some(list)) if self.sent.as_ref() == Some(&list) => {}
                Poll::Ready(Some(list)) => {
                    let devices = list.iter().map(Into::into).collect();
                    self.sent = Some(list);
                    return Poll::Ready(Some(Ok(api::ListAndWatchResponse { devices })));
                }
                // Without its writer the list stays as it is; only a shutdown ends the stream.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}
