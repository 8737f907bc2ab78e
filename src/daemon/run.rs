//! Does what [`step`] says.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::endpoint::Endpoint;
use super::holders;
use super::pace::Pace;
use super::post::{Message, Post};
use super::registrar::{Registrar, Telling, Told};
use super::report::{Record, Status, deaf};
use super::source::{ConfigWatch, over};
use super::{Action, Event, Manner, Options, Outputs, PoolService, RunError, State, UacceViews, step};
use crate::config::{Config, PoolConfig, UacceView};
use crate::host::{HostRoot, Wanted, Watch, scan};
use crate::kubelet::{self, DeviceList, Instance, KUBELET_SOCKET, Pool as _, SocketIdentity, SocketWatch};
use crate::model::{Inventory, Note, ResourceName};
use crate::observe::Metrics;
use crate::pool::{Held, Pool};

/// How long podresources may take before the checkpoint is read in its stead.
const HOLDERS_LIMIT: Duration = Duration::from_millis(500);

/// Serves the pools until `shutdown` is done.
///
/// # Errors
/// Only before the first pool is served; afterwards nothing makes it end but `shutdown`.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    if !options.device_plugin_directory.is_dir() {
        return Err(RunError::NoDirectory { path: options.device_plugin_directory });
    }
    let mut registry = match &options.manner {
        Manner::Watcher(path) if !path.is_dir() => {
            return Err(RunError::NoRegistry { path: path.clone() });
        }
        Manner::Watcher(path) => Some(SocketWatch::new(path)),
        Manner::Direct => None,
    };
    let (events, mut received) = mpsc::unbounded_channel();
    let mut sockets = SocketWatch::new(&options.device_plugin_directory);
    let machine = Watch::new(&options.host);
    for reason in &machine.deaf {
        tracing::warn!(
            reason,
            "cannot listen to the kernel; the machine is looked at every {:?}",
            options.scan_every
        );
    }
    let mut config = options.source.as_ref().map(ConfigWatch::new);
    let mut tick = interval(options.scan_every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut daemon = Daemon::new(options, events);
    let mut status = Status::new(&daemon.options, &daemon.instance, &daemon.record.verdicts.metrics);
    daemon.kubelet(sockets.sockets().get(KUBELET_SOCKET));

    tokio::pin!(shutdown);
    loop {
        let (look_at, wake_at) = (daemon.pace.due(), daemon.wake_at);
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            // A storm of events must not make the probes think that nobody is there.
            Some(question) = status.asked() => {
                daemon.record.deaf = deaf(&machine, &sockets, config.as_ref());
                status.answer(question, &daemon.state, &daemon.record, &daemon.options);
            }
            Some(message) = received.recv() => daemon.receive(message),
            now = sockets.changed() => {
                let kubelet = now.get(KUBELET_SOCKET);
                daemon.watch_siblings(now);
                daemon.take_lost_sockets();
                daemon.kubelet(kubelet);
            }
            () = changed(registry.as_mut()) => daemon.take_lost_sockets(),
            () = until(look_at) => daemon.look(),
            () = until(wake_at) => {
                daemon.wake_at = None;
                daemon.take(Event::Woken);
            }
            seen = machine.changed() => daemon.pace.hint(seen, Instant::now()),
            _ = tick.tick() => {
                status.keep_socket(&daemon.options.device_plugin_directory);
                daemon.look();
            }
            () = daemon.options.look_again.notified() => daemon.look(),
            () = daemon.options.reload.notified() => {
                daemon.reload(true);
                daemon.look();
            }
            () = new_config(config.as_mut()) => daemon.reload(false),
        }
    }
    daemon.stop().await;
    Ok(())
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn changed(sockets: Option<&mut SocketWatch>) {
    match sockets {
        Some(sockets) => {
            sockets.changed().await;
        }
        None => std::future::pending().await,
    }
}

async fn new_config(config: Option<&mut ConfigWatch>) {
    match config {
        Some(config) => config.changed().await,
        None => std::future::pending().await,
    }
}

struct Daemon {
    options: Options,
    started: Instant,
    wanted: Arc<Wanted>,
    /// Counts the changes of `wanted`.
    generation: u64,
    state: State,
    instance: Instance,
    served: BTreeMap<usize, Served>,
    registrar: Registrar,
    post: Post,
    pace: Pace,
    wake_at: Option<Instant>,
    /// A scan is under way, and whether another one was asked for meanwhile.
    looking: Option<bool>,
    /// The config is being read, and whether it was to be read again meanwhile, by somebody's wish or not.
    reading: Option<Option<bool>>,
    notes: Vec<Note>,
    /// The text of the config that is served.
    text: String,
    /// What running containers were given has been made again.
    restored: bool,
    /// What is told of how things went.
    record: Record,
}

/// One pool: what it answers from, what its streams are told, and what stands for it towards the kubelet.
struct Served {
    resource: ResourceName,
    service: Arc<PoolService>,
    list: watch::Sender<DeviceList>,
    endpoint: Option<Endpoint>,
    telling: Option<Telling>,
    siblings: HashMap<PathBuf, JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        for watching in self.siblings.values() {
            watching.abort();
        }
    }
}

impl Daemon {
    fn new(options: Options, messages: mpsc::UnboundedSender<Message>) -> Self {
        let post = Post::new(messages);
        let record = Record::new(&options);
        let verdicts = record.verdicts.clone();
        let mut daemon = Self {
            started: Instant::now(),
            wanted: Arc::new(Wanted::of(&options.config)),
            generation: 0,
            state: State::new(options.config.clone()),
            instance: Instance::random(),
            served: BTreeMap::new(),
            registrar: Registrar::new(
                options.manner.clone(),
                &options.device_plugin_directory,
                post.clone(),
                verdicts,
            ),
            pace: Pace::new(),
            wake_at: None,
            looking: None,
            reading: None,
            notes: Vec::new(),
            text: options.text.clone(),
            restored: false,
            record,
            options,
            post,
        };
        daemon.serve_pools();
        daemon
    }

    /// Makes what answers for each pool that is new.
    fn serve_pools(&mut self) {
        let config = self.state.config();
        // The kubelet would be given the same mount twice where two such pools meet in a container.
        let engine_pools = config.pools.iter().filter(|pool| pool.may_hold_engines()).count();
        let views = UacceViews::new(&self.options.device_plugin_directory);
        for (number, pool) in self.state.served() {
            let filtered = match pool.uacce_view {
                UacceView::Auto => pool.may_hold_engines() && engine_pools == 1,
                UacceView::Filtered => true,
                UacceView::Host => false,
            };
            let outputs = Outputs {
                device_info: self.options.device_info.clone(),
                cdi: self.options.cdi.clone(),
                kubelet: self.options.device_plugin_directory.clone(),
                views: filtered.then(|| views.clone()),
            };
            let served = self.served.entry(number).or_insert_with(|| {
                tracing::debug!(resource = %pool.resource, "pool added");
                new_pool(&self.options.host, outputs.clone(), pool, &self.record.verdicts.metrics)
            });
            served.service.write_to(outputs);
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Looks at the machine on a thread where that may block.
    fn look(&mut self) {
        self.pace.begins(Instant::now());
        if let Some(again) = &mut self.looking {
            *again = true;
            return;
        }
        self.looking = Some(false);
        // A pod may hold what the config does not want any more.
        let (host, post, generation) = (self.options.host.clone(), self.post.clone(), self.generation);
        let wanted = self.wanted_with_held();
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let inventory = scan(&host, &wanted);
            post.send(Message::Looked { generation, inventory, took: started.elapsed() });
        });
    }

    fn wanted_with_held(&self) -> Arc<Wanted> {
        match self.state.held() {
            Held::Known(held) if !held.is_empty() => {
                Arc::new(self.wanted.as_ref().clone().and_devices(holders::devices(self.state.held())))
            }
            _ => Arc::clone(&self.wanted),
        }
    }

    /// Reads the config on a thread where that may block, and looks at the machine for what it asks for.
    fn reload(&mut self, asked: bool) {
        let Some(source) = self.options.source.clone() else {
            if asked {
                tracing::warn!("there is no config file to read again");
            }
            return;
        };
        if let Some(again) = &mut self.reading {
            *again = Some(asked || *again == Some(true));
            return;
        }
        self.reading = Some(None);
        let (host, post, known) = (self.options.host.clone(), self.post.clone(), self.text.clone());
        let held = self.state.held().clone();
        tokio::task::spawn_blocking(move || match source.load_other(&known) {
            Ok(None) => post.send(Message::ReadAgain(Ok(()), asked)),
            Ok(Some(loaded)) => {
                let wanted = Wanted::of(&loaded.checked.config).and_devices(holders::devices(&held));
                let inventory = scan(&host, &wanted);
                post.send(Message::Read(Box::new(loaded), inventory));
            }
            Err(error) => post.send(Message::ReadAgain(Err(error.to_string()), asked)),
        });
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Event(event) => self.take(event),
            Message::Looked { generation, inventory, took } => {
                tracing::debug!(devices = inventory.devices().len(), ?took, "scanned");
                self.pace.took(took);
                self.record.scanned(took);
                let again = self.looking.take() == Some(true);
                if generation == self.generation {
                    self.tell_notes(&inventory);
                    self.take(Event::Scanned(inventory));
                    self.keep_cdi_devices();
                }
                if again || generation != self.generation {
                    self.look();
                }
            }
            Message::Read(loaded, inventory) => {
                loaded.tell();
                tracing::info!(
                    config = loaded.shown(),
                    pools = loaded.checked.config.pools.len(),
                    "new config"
                );
                self.record.applied(&loaded);
                let config = over(loaded.checked.config, self.state.config());
                self.text = loaded.text;
                self.wanted = Arc::new(Wanted::of(&config));
                self.generation += 1;
                self.tell_notes(&inventory);
                self.take(Event::Configured(config, inventory));
                self.has_read();
            }
            Message::ReadAgain(read, asked) => {
                self.record.read_again(read, asked);
                self.has_read();
            }
        }
    }

    /// The kubelet's socket is this one now. Where it finds our sockets, a restart is its own concern.
    fn kubelet(&mut self, identity: Option<SocketIdentity>) {
        self.record.kubelet(identity);
        if self.options.manner == Manner::Direct {
            self.take(Event::Kubelet(identity));
        }
    }

    /// The config was read; perhaps it has changed meanwhile.
    fn has_read(&mut self) {
        if let Some(Some(asked)) = self.reading.take() {
            self.reload(asked);
        }
    }

    fn take(&mut self, event: Event) {
        let held = match &event {
            Event::Held(held) => Some(held.clone()),
            _ => None,
        };
        let now = self.now();
        let (state, actions) =
            step(std::mem::replace(&mut self.state, State::new(Config::default())), event, now);
        self.state = state;
        if held.is_some() {
            self.wake_at = None;
            self.serve_pools();
        }
        let is_other = actions.iter().any(|action| matches!(action, Action::Take(_) | Action::Close(_)));
        for action in actions {
            self.act(action);
        }
        if let Some(Held::Known(held)) = held {
            for (resource, service) in self.pools() {
                service.hold(&holders::ids_of(&held, resource));
            }
        }
        if is_other {
            self.keep_cdi_devices();
        }
    }

    fn tell_notes(&mut self, inventory: &Inventory) {
        for note in inventory.notes().iter().filter(|note| !self.notes.contains(note)) {
            tracing::warn!(path = note.path, cause = note.cause, "cannot read a part of the host");
        }
        self.notes = inventory.notes().to_vec();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::AskHolders => self.ask_holders(),
            Action::WakeAt(time) => self.wake_at = Some(self.started + time),
            Action::Take(pool) => {
                if let (Some(served), Some(state)) = (self.served.get(&pool), self.state.pool(pool)) {
                    served.service.take(state.clone());
                }
            }
            Action::Publish(pool, list) => {
                if let Some(served) = self.served.get(&pool) {
                    let healthy = list.iter().filter(|device| device.healthy).count();
                    tracing::info!(resource = %served.resource, devices = list.len(), healthy, "devices changed");
                    served.list.send_replace(list);
                }
            }
            Action::Bind { pool, epoch } => {
                let bound = self.bind(pool);
                // Not taken at once: a step must not call another.
                self.post.send(Event::Bound { pool, epoch, bound });
            }
            Action::Register { pool, epoch, after } => self.register(pool, epoch, after),
            Action::Timer { pool, epoch, after } => {
                let post = self.post.clone();
                tokio::spawn(async move {
                    sleep(after).await;
                    post.send(Event::TimerDue { pool, epoch });
                });
            }
            Action::Close(pool) => {
                if let Some(mut served) = self.served.remove(&pool) {
                    tracing::info!(resource = %served.resource, "pool removed");
                    self.record.forget(&served.resource);
                    if let Some(endpoint) = served.endpoint.take() {
                        tokio::spawn(endpoint.stop());
                    }
                }
            }
        }
    }

    fn ask_holders(&mut self) {
        let directory = self.options.device_plugin_directory.clone();
        let first = !std::mem::replace(&mut self.restored, true);
        if first {
            // At the start, nothing must be waited for.
            let holdings = kubelet::holdings_from_checkpoint(&directory);
            let held = match &holdings {
                Ok(holdings) => holders::held(&kubelet::by_resource(holdings), |resource| {
                    self.state.resources_ever().contains(resource)
                }),
                Err(error) => {
                    tracing::warn!(%error, "cannot tell what running containers hold");
                    Held::Unknown
                }
            };
            self.take(Event::Held(held));
            holders::restore(&holdings.unwrap_or_default(), self.pools(), &directory);
        }
        let (socket, post) = (self.options.podresources.clone(), self.post.clone());
        let ours = self.state.resources_ever().clone();
        let was_known = matches!(self.state.held(), Held::Known(_));
        tokio::spawn(async move {
            let held = match kubelet::holders(socket.as_deref(), &directory, HOLDERS_LIMIT).await {
                Ok((holders, kubelet::Teller::Podresources)) => holders::held(&holders, |_| true),
                // A pod that has ended would hold a device for ever, under a name that nobody serves any more.
                Ok((holders, kubelet::Teller::Checkpoint)) => {
                    holders::held(&holders, |resource| ours.contains(resource))
                }
                Err(error) => {
                    if was_known {
                        tracing::warn!(%error, "cannot tell what pods hold, so every device counts as held");
                    }
                    Held::Unknown
                }
            };
            post.send(Event::Held(held));
        });
    }

    fn keep_cdi_devices(&self) {
        if let Some(cdi) = &self.options.cdi {
            let pools: Vec<_> = self.pools().collect();
            holders::keep_cdi_devices(cdi, &self.options.device_plugin_directory, &pools);
        }
    }

    fn pools(&self) -> impl Iterator<Item = (&ResourceName, &PoolService)> {
        self.served.values().map(|served| (&served.resource, &*served.service))
    }

    fn bind(&mut self, pool: usize) -> bool {
        let Some(served) = self.served.get_mut(&pool) else {
            return false;
        };
        if let Some(old) = served.endpoint.take() {
            tokio::spawn(old.stop());
        }
        let endpoint = Endpoint::start(
            &self.options.device_plugin_directory,
            &served.resource,
            &self.instance,
            Arc::clone(&served.service),
            served.list.subscribe(),
            (pool, self.post.clone()),
        );
        match endpoint {
            Ok(endpoint) => {
                tracing::info!(resource = %served.resource, socket = %endpoint.socket.path().display(), "serving");
                served.endpoint = Some(endpoint);
                true
            }
            Err(error) => {
                self.record.verdicts.unbound(&served.resource, error.to_string());
                false
            }
        }
    }

    fn register(&mut self, pool: usize, epoch: u64, after: Duration) {
        let Some(served) = self.served.get_mut(&pool) else { return };
        let Some(endpoint) = &served.endpoint else { return };
        let told = Told {
            pool,
            epoch,
            resource: served.resource.clone(),
            endpoint: endpoint.socket.path().to_owned(),
            options: served.service.options(),
        };
        // The kubelet looks at a name anew only when the old one has gone.
        served.telling = None;
        served.telling = self.registrar.register(told, after, &self.instance);
    }

    /// The pools whose socket somebody removed: a starting kubelet removes them all.
    fn take_lost_sockets(&mut self) {
        let is_lost = |served: &Served| {
            let endpoint = served.endpoint.as_ref().map(|endpoint| &endpoint.socket);
            let telling = served.telling.as_ref().and_then(|telling| telling.socket.as_ref());
            endpoint.into_iter().chain(telling).any(|socket| !socket.is_in_place())
        };
        let lost: Vec<usize> =
            self.served.iter().filter(|(_, served)| is_lost(served)).map(|(&pool, _)| pool).collect();
        for pool in lost {
            self.take(Event::SocketLost(pool));
        }
    }

    /// Watches every process that serves a resource of ours, too.
    fn watch_siblings(&mut self, sockets: &kubelet::Sockets) {
        let directory = &self.options.device_plugin_directory;
        for (&pool, served) in &mut self.served {
            let own =
                served.endpoint.as_ref().map(|endpoint| endpoint.socket.file_name()).unwrap_or_default();
            let there = kubelet::siblings(directory, sockets, &served.resource, own);
            served.siblings.retain(|_, watching| !watching.is_finished());
            for path in there {
                served.siblings.entry(path.clone()).or_insert_with(|| {
                    tracing::info!(resource = %served.resource, socket = %path.display(), "somebody else serves it too");
                    let post = self.post.clone();
                    tokio::spawn(async move {
                        if kubelet::outlive(&path).await {
                            post.send(Event::SiblingEnded(pool));
                        }
                        // It may have been killed, and have left its socket behind.
                        if let Err(error) = kubelet::remove_stale(&path) {
                            tracing::debug!(%error, "left where it is");
                        }
                    })
                });
            }
        }
    }

    async fn stop(mut self) {
        let endpoints = self.served.values_mut().filter_map(|served| {
            served.telling = None;
            served.endpoint.take()
        });
        let stopping: Vec<_> = endpoints.map(|endpoint| tokio::spawn(endpoint.stop())).collect();
        for endpoint in stopping {
            let _ = endpoint.await;
        }
    }
}

fn new_pool(host: &HostRoot, outputs: Outputs, config: &Arc<PoolConfig>, metrics: &Metrics) -> Served {
    let service = PoolService::new(host.clone(), outputs, Pool::empty(config)).counted_by(metrics.clone());
    Served {
        resource: config.resource.clone(),
        service: Arc::new(service),
        list: watch::Sender::new(DeviceList::from([])),
        endpoint: None,
        telling: None,
        siblings: HashMap::new(),
    }
}
