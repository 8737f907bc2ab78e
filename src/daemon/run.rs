//! Does what [`step`] says.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::cdi::Kept;
use super::endpoint::Endpoint;
use super::{
    Action, CdiDirectory, DeviceInfoDirectory, Event, Outputs, PoolService, State, UacceViews, step,
};
use crate::config::{Config, PoolConfig, UacceView};
use crate::handout::cdi::kind;
use crate::host::{HostRoot, Wanted, scan};
use crate::kubelet::{self, DeviceList, Instance, KUBELET_SOCKET, Pool as _, Registration, SocketWatch};
use crate::model::{DeviceId, Inventory, Note, ResourceName};
use crate::pool::Pool;

/// The kubelet's directory of sockets, a constant of the kubelet whatever its root
/// (<https://github.com/kubernetes/kubelet/blob/v0.34.4/pkg/apis/deviceplugin/v1beta1/constants.go>).
pub const DEVICE_PLUGIN_DIRECTORY: &str = "/var/lib/kubelet/device-plugins";

/// The kubelet waits up to 10 s for the endpoint when it dials back inside Register.
const REGISTER_LIMIT: Duration = Duration::from_secs(12);

/// How many pools register at a time: each takes a connection with its buffers, and the kubelet takes them one by one.
const REGISTRATIONS: usize = 8;

/// What a daemon is given.
pub struct Options {
    /// The machine.
    pub host: HostRoot,
    /// The pools.
    pub config: Config,
    /// Where the kubelet listens, and where the pools' sockets go.
    pub device_plugin_directory: PathBuf,
    /// Where device-information files go.
    pub device_info: DeviceInfoDirectory,
    /// Where CDI specs go, where devices are handed over through CDI.
    pub cdi: Option<CdiDirectory>,
    /// The slow look that is the truth where no event tells.
    pub scan_every: Duration,
    /// Somebody thinks that the machine has changed.
    pub look_again: Arc<Notify>,
}

/// Why the daemon cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kubelet's directory is not there.
    #[error("{path} is not a directory; is it mounted? (--device-plugin-dir names another one)")]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
}

/// Serves the pools until `shutdown` is done.
///
/// # Errors
/// Only before the first pool is served; afterwards nothing makes it end but `shutdown`.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    if !options.device_plugin_directory.is_dir() {
        return Err(RunError::NoDirectory { path: options.device_plugin_directory });
    }
    let (events, mut received) = mpsc::unbounded_channel();
    let mut sockets = SocketWatch::new(&options.device_plugin_directory);
    let mut tick = interval(options.scan_every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut daemon = Daemon::new(options, events);
    daemon.take(Event::Kubelet(sockets.sockets().get(KUBELET_SOCKET)));

    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(event) = received.recv() => daemon.take(event),
            now = sockets.changed() => {
                let kubelet = now.get(KUBELET_SOCKET);
                for event in daemon.lost_sockets() {
                    daemon.take(event);
                }
                daemon.take(Event::Kubelet(kubelet));
            }
            _ = tick.tick() => daemon.look(),
            () = daemon.options.look_again.notified() => daemon.look(),
        }
    }
    daemon.stop().await;
    Ok(())
}

struct Daemon {
    options: Options,
    wanted: Arc<Wanted>,
    state: State,
    instance: Instance,
    served: Vec<Served>,
    endpoints: HashMap<usize, Endpoint>,
    registrations: Arc<Semaphore>,
    events: mpsc::UnboundedSender<Event>,
    /// A scan is under way, and whether another one was asked for meanwhile.
    looking: Option<bool>,
    notes: Vec<Note>,
    /// What running containers were given has been made again.
    restored: bool,
}

/// One pool: what it answers from and what its streams are told.
struct Served {
    resource: ResourceName,
    service: Arc<PoolService>,
    list: watch::Sender<DeviceList>,
}

impl Daemon {
    fn new(options: Options, events: mpsc::UnboundedSender<Event>) -> Self {
        let views = UacceViews::new(&options.device_plugin_directory);
        // The kubelet would be given the same mount twice where two such pools meet in a container.
        let engine_pools = options.config.pools.iter().filter(|pool| pool.may_hold_engines()).count();
        let serve = |config: &Arc<PoolConfig>| {
            let filtered = match config.uacce_view {
                UacceView::Auto => config.may_hold_engines() && engine_pools == 1,
                UacceView::Filtered => true,
                UacceView::Host => false,
            };
            let outputs = Outputs {
                device_info: options.device_info.clone(),
                cdi: options.cdi.clone(),
                views: filtered.then(|| views.clone()),
            };
            let service = PoolService::new(options.host.clone(), outputs, Pool::empty(config));
            let list = watch::Sender::new(DeviceList::from([]));
            Served { resource: config.resource.clone(), service: Arc::new(service), list }
        };
        Self {
            wanted: Arc::new(Wanted::of(&options.config)),
            served: options.config.pools.iter().map(serve).collect(),
            state: State::new(options.config.clone()),
            instance: Instance::random(),
            endpoints: HashMap::new(),
            registrations: Arc::new(Semaphore::new(REGISTRATIONS)),
            looking: None,
            notes: Vec::new(),
            restored: false,
            options,
            events,
        }
    }

    /// Looks at the machine on a thread where that may block.
    fn look(&mut self) {
        if let Some(again) = &mut self.looking {
            *again = true;
            return;
        }
        self.looking = Some(false);
        let (host, wanted, events) =
            (self.options.host.clone(), Arc::clone(&self.wanted), self.events.clone());
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let inventory = scan(&host, &wanted);
            tracing::debug!(devices = inventory.devices().len(), took = ?started.elapsed(), "scanned");
            // The daemon may have ended meanwhile.
            let _ = events.send(Event::Scanned(inventory));
        });
    }

    fn take(&mut self, event: Event) {
        let scanned = matches!(event, Event::Scanned(_));
        let first_scan = scanned && !std::mem::replace(&mut self.restored, true);
        if let Event::Scanned(inventory) = &event {
            self.scanned(inventory);
        }
        let (state, actions) = step(std::mem::replace(&mut self.state, State::new(Config::default())), event);
        self.state = state;
        for action in actions {
            self.act(action);
        }
        if first_scan {
            self.restore();
        }
        if scanned {
            self.keep_cdi_devices();
        }
    }

    /// CDI devices of kinds that no pool has stay resolvable for as long as containers have them.
    fn keep_cdi_devices(&self) {
        let Some(cdi) = &self.options.cdi else { return };
        // Where it is not known who has what, nothing is removed.
        let Ok(holdings) = kubelet::holdings_from_checkpoint(&self.options.device_plugin_directory) else {
            return;
        };
        let resources: Vec<&ResourceName> = self.served.iter().map(|served| &served.resource).collect();
        let mut kept: Vec<Kept> = Vec::new();
        for holding in &holdings {
            for (named, id) in holding.cdi_devices.iter().filter_map(|name| name.split_once('=')) {
                let Some(Served { resource, service, .. }) =
                    self.served.iter().find(|served| served.service.has(id))
                else {
                    continue;
                };
                // The pool's own spec has it already.
                if named == kind(resource) {
                    continue;
                }
                let nodes = service.nodes(id).unwrap_or_default();
                let (resource, kind) = (resource.clone(), named.to_owned());
                kept.push(Kept { resource, kind, id: DeviceId::from(id), nodes });
            }
        }
        cdi.keep(&kept, &resources, |id| self.served.iter().any(|served| served.service.has(id)));
    }

    fn scanned(&mut self, inventory: &Inventory) {
        if self.looking.take() == Some(true) {
            self.look();
        }
        for note in inventory.notes().iter().filter(|note| !self.notes.contains(note)) {
            tracing::warn!(path = note.path, cause = note.cause, "cannot read a part of the host");
        }
        self.notes = inventory.notes().to_vec();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Take(pool) => self.replace(pool),
            Action::Publish(pool, list) => {
                if let Some(served) = self.served.get(pool) {
                    let healthy = list.iter().filter(|device| device.healthy).count();
                    tracing::info!(resource = %served.resource, devices = list.len(), healthy, "devices changed");
                    served.list.send_replace(list);
                }
            }
            Action::Bind { pool, epoch } => {
                let bound = self.bind(pool);
                // Not taken at once: a step must not call another.
                let _ = self.events.send(Event::Bound { pool, epoch, bound });
            }
            Action::Register { pool, epoch, after } => self.register(pool, epoch, after),
            Action::Timer { pool, epoch, after } => {
                let events = self.events.clone();
                tokio::spawn(async move {
                    sleep(after).await;
                    let _ = events.send(Event::TimerDue { pool, epoch });
                });
            }
        }
    }

    /// Gives the service of a pool its new state.
    fn replace(&self, position: usize) {
        if let (Some(served), Some(pool)) =
            (self.served.get(position), self.state.pools().pools.get(position))
        {
            served.service.take(pool.clone());
        }
    }

    /// After the first scan: running containers keep what they were given, also when a reboot has emptied `/var/run`. The
    /// kubelet does not ask again for them.
    fn restore(&self) {
        let directory = &self.options.device_plugin_directory;
        let holdings = match kubelet::holdings_from_checkpoint(directory) {
            Ok(holdings) => holdings,
            Err(error) => {
                tracing::warn!(%error, "cannot tell what running containers hold");
                return;
            }
        };
        for holding in &holdings {
            let served = self.served.iter().find(|served| served.resource.to_string() == holding.resource);
            if let Some(served) = served {
                served.service.restore(&holding.ids);
            }
        }
        let plain = |holding: &kubelet::Holding| -> Vec<String> {
            let ids = holding.ids.iter().map(|id| id.split_once("::").map_or(id.as_str(), |(id, _)| id));
            ids.map(str::to_owned).collect()
        };
        let kept: Vec<Vec<String>> = holdings.iter().map(plain).collect();
        UacceViews::new(directory).keep_only(&kept);
    }

    fn bind(&mut self, pool: usize) -> bool {
        let Some(served) = self.served.get(pool) else {
            return false;
        };
        if let Some(old) = self.endpoints.remove(&pool) {
            tokio::spawn(old.stop());
        }
        let endpoint = Endpoint::start(
            &self.options.device_plugin_directory,
            &served.resource,
            &self.instance,
            Arc::clone(&served.service),
            served.list.subscribe(),
            (pool, self.events.clone()),
        );
        match endpoint {
            Ok(endpoint) => {
                tracing::info!(resource = %served.resource, socket = %endpoint.socket.path().display(), "serving");
                self.endpoints.insert(pool, endpoint);
                true
            }
            Err(error) => {
                tracing::error!(resource = %served.resource, %error, "cannot serve");
                false
            }
        }
    }

    fn register(&self, pool: usize, epoch: u64, after: Duration) {
        let (Some(served), Some(endpoint)) = (self.served.get(pool), self.endpoints.get(&pool)) else {
            return;
        };
        let socket = self.options.device_plugin_directory.join(KUBELET_SOCKET);
        let name = endpoint.socket.file_name().to_owned();
        let (resource, options) = (served.resource.clone(), served.service.options());
        let (events, registrations) = (self.events.clone(), Arc::clone(&self.registrations));
        tokio::spawn(async move {
            if !after.is_zero() {
                sleep(after).await;
            }
            let _turn = registrations.acquire().await;
            let registration = Registration { endpoint: &name, resource: &resource, options };
            let accepted = match kubelet::register(&socket, &registration, REGISTER_LIMIT).await {
                Ok(identity) => {
                    tracing::info!(%resource, "registered");
                    Some(identity)
                }
                Err(error) => {
                    tracing::warn!(%resource, %error, "not registered");
                    None
                }
            };
            let _ = events.send(Event::Answered { pool, epoch, accepted });
        });
    }

    /// The pools whose socket somebody removed: a starting kubelet removes them all.
    fn lost_sockets(&self) -> Vec<Event> {
        let lost = self.endpoints.iter().filter(|(_, endpoint)| !endpoint.socket.is_in_place());
        lost.map(|(pool, _)| Event::SocketLost(*pool)).collect()
    }

    async fn stop(mut self) {
        let stopping: Vec<_> =
            self.endpoints.drain().map(|(_, endpoint)| tokio::spawn(endpoint.stop())).collect();
        for endpoint in stopping {
            let _ = endpoint.await;
        }
    }
}
