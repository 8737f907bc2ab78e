//! The life of the plugin: one state, one pure step.
//!
//! ```text
//!   Scanned ─────┐ other devices,                    Held ───▶ the offer is brought up to date ───▶ Take, Publish
//!                ├─ or a pod's device ─▶ AskHolders ──┘              ▲          │
//!   Configured ──┘    kept back                                      │          └─ WakeAt ──▶ Woken
//!                                                                    └─────────────────────────┘
//! ```
//!
//! What is on offer is decided in [`crate::pool::Offer`], and each pool's link to the kubelet lives in `link`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::link::{AFTER_LOSS, Link};
use crate::config::{Config, PoolConfig};
use crate::kubelet::{Advertised, DeviceList, PluginOptions, SocketIdentity};
use crate::model::{DeviceId, Inventory, ResourceName};
use crate::pool::{Held, Member, Offer, Pool};

/// What the daemon knows.
#[derive(Debug, Clone)]
pub struct State {
    config: Config,
    /// A config that waits for the kubelet to tell who holds what.
    next: Option<Config>,
    kubelet: Option<SocketIdentity>,
    /// Nothing was scanned yet.
    inventory: Option<Inventory>,
    held: Held,
    offer: Offer,
    links: Vec<Served>,
    pools_ever: usize,
    resources_ever: BTreeSet<String>,
}

/// A pool that is served, or was until now.
#[derive(Debug, Clone)]
struct Served {
    /// Its number, which no other pool ever has.
    pool: usize,
    resource: ResourceName,
    options: PluginOptions,
    link: Link,
}

/// What happened. A pool is named by a number that is its own for the life of the daemon.
#[derive(Debug, Clone)]
pub enum Event {
    /// The machine was looked at.
    Scanned(Inventory),
    /// The config is another one, and the machine was looked at for what it asks for.
    Configured(Config, Inventory),
    /// Pods hold these devices.
    Held(Held),
    /// The time of [`Action::WakeAt`] has come.
    Woken,
    /// The kubelet's socket is this one now.
    Kubelet(Option<SocketIdentity>),
    /// The pool listens on its socket.
    Bound {
        /// Which pool.
        pool: usize,
        /// That of the action.
        epoch: u64,
        /// Whether it worked.
        bound: bool,
    },
    /// Its socket is gone from the directory.
    SocketLost(usize),
    /// Another process that served the same resource has ended.
    SiblingEnded(usize),
    /// A registration has ended.
    Answered {
        /// Which pool.
        pool: usize,
        /// That of the action.
        epoch: u64,
        /// Which kubelet was asked, where it has accepted the pool; nothing where it has not.
        accepted: Option<Option<SocketIdentity>>,
    },
    /// A stream was opened, and so many are open now.
    StreamOpened(usize, usize),
    /// A stream was closed, and so many are open now.
    StreamClosed(usize, usize),
    /// A timer has run out.
    TimerDue {
        /// Which pool.
        pool: usize,
        /// That of the action.
        epoch: u64,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Find out what pods hold, and send [`Event::Held`].
    AskHolders,
    /// Send [`Event::Woken`] at this time since the start; an earlier wish is void.
    WakeAt(Duration),
    /// Answer from what the pool holds now.
    Take(usize),
    /// Tell the streams of a pool.
    Publish(usize, DeviceList),
    /// Make a socket and serve; an older socket of the pool is given up.
    Bind {
        /// Which pool.
        pool: usize,
        /// To be sent back.
        epoch: u64,
    },
    /// Register after a moment.
    Register {
        /// Which pool.
        pool: usize,
        /// To be sent back.
        epoch: u64,
        /// The moment.
        after: Duration,
    },
    /// Send [`Event::TimerDue`] after this time.
    Timer {
        /// Which pool.
        pool: usize,
        /// To be sent back.
        epoch: u64,
        /// The time.
        after: Duration,
    },
    /// Close the socket of a pool that is given up, and forget it.
    Close(usize),
}

/// A pool as others are told of it.
#[derive(Debug, Clone, Copy)]
pub struct PoolState<'a> {
    /// The pool with its devices.
    pub pool: &'a Pool,
    /// The word for the state of its link to the kubelet.
    pub link: &'static str,
    /// How many streams are open.
    pub streams: usize,
    /// The kubelet listens.
    pub is_streaming: bool,
    /// It should be registered, and nobody listens.
    pub is_unheard: bool,
}

impl State {
    /// Nothing is known yet.
    pub fn new(config: Config) -> Self {
        let mut state = Self {
            config: Config::default(),
            next: None,
            kubelet: None,
            inventory: None,
            held: Held::Unknown,
            offer: Offer::default(),
            links: Vec::new(),
            pools_ever: 0,
            resources_ever: BTreeSet::new(),
        };
        state.configure(config, &mut Vec::new());
        state
    }

    /// The config that is served.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the last look at the machine found.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.inventory.as_ref()
    }

    /// Who holds devices, as far as it was asked.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Every resource that was served since the start.
    pub fn resources_ever(&self) -> &BTreeSet<String> {
        &self.resources_ever
    }

    /// A pool as it is now.
    pub fn pool(&self, pool: usize) -> Option<&Pool> {
        let served = self.links.iter().find(|served| served.pool == pool)?;
        self.offered(&served.resource)
    }

    /// All pools, in the order of the config.
    pub fn pools(&self) -> impl Iterator<Item = PoolState<'_>> {
        self.offer.pools().pools.iter().filter_map(|pool| {
            let link = &self.links.iter().find(|served| served.resource == pool.config.resource)?.link;
            let (is_streaming, is_unheard) = (link.is_streaming(), link.is_unheard());
            Some(PoolState { pool, link: link.phase(), streams: link.streams(), is_streaming, is_unheard })
        })
    }

    /// The number of the pool that serves a resource.
    pub fn number_of(&self, resource: &ResourceName) -> Option<usize> {
        self.links.iter().find(|served| served.resource == *resource).map(|served| served.pool)
    }

    /// The numbers of the pools that are served, with their configs.
    pub fn served(&self) -> impl Iterator<Item = (usize, &Arc<PoolConfig>)> {
        self.config.pools.iter().filter_map(|config| Some((self.number_of(&config.resource)?, config)))
    }

    fn offered(&self, resource: &ResourceName) -> Option<&Pool> {
        self.offer.pools().pools.iter().find(|pool| pool.config.resource == *resource)
    }
}

/// Takes one event. `now` is the time since the start.
pub fn step(mut state: State, event: Event, now: Duration) -> (State, Vec<Action>) {
    let mut actions = Vec::new();
    match event {
        Event::Scanned(inventory) => state.scanned(inventory, &mut actions),
        Event::Configured(config, inventory) => {
            state.next = Some(config);
            state.inventory =
                Some(inventory.settled(state.inventory.as_ref().unwrap_or(&Inventory::default())));
            actions.push(Action::AskHolders);
        }
        Event::Held(held) => {
            state.held = held;
            if let Some(config) = state.next.take() {
                state.configure(config, &mut actions);
            }
            state.offer(now, &mut actions);
        }
        Event::Woken => state.offer(now, &mut actions),
        // Other sockets come and go too; that a kubelet is still the same must not shorten anybody's pause.
        Event::Kubelet(identity) if identity == state.kubelet => {}
        Event::Kubelet(identity) => {
            state.kubelet = identity;
            for served in &mut state.links {
                actions.extend(served.link.kubelet(identity));
            }
        }
        Event::Bound { pool, epoch, bound } => {
            actions.extend(state.link(pool).and_then(|link| link.bound(epoch, bound)));
        }
        Event::SocketLost(pool) => actions.extend(state.link(pool).and_then(Link::socket_lost)),
        Event::SiblingEnded(pool) => {
            actions.extend(state.link(pool).and_then(|link| link.register_again(AFTER_LOSS)));
        }
        Event::Answered { pool, epoch, accepted } => {
            let kubelet = state.kubelet;
            actions.extend(state.link(pool).and_then(|link| link.answered(epoch, accepted, kubelet)));
        }
        Event::StreamOpened(pool, open) => {
            actions.extend(state.link(pool).and_then(|link| link.stream_opened(open)));
        }
        Event::StreamClosed(pool, open) => {
            actions.extend(state.link(pool).and_then(|link| link.stream_closed(open)));
        }
        Event::TimerDue { pool, epoch } => {
            actions.extend(state.link(pool).and_then(|link| link.timer_due(epoch)));
        }
    }
    let closed = |served: &Served| actions.contains(&Action::Close(served.pool));
    state.links.retain(|served| !closed(served));
    (state, actions)
}

impl State {
    fn link(&mut self, pool: usize) -> Option<&mut Link> {
        self.links.iter_mut().find(|served| served.pool == pool).map(|served| &mut served.link)
    }

    fn scanned(&mut self, inventory: Inventory, actions: &mut Vec<Action>) {
        let inventory = inventory.settled(self.inventory.as_ref().unwrap_or(&Inventory::default()));
        let is_other = self.inventory.as_ref() != Some(&inventory);
        self.inventory = Some(inventory);
        if is_other || self.offer.depends_on_holders() {
            actions.push(Action::AskHolders);
        }
    }

    /// Takes a config: pools are the same where their resource is.
    fn configure(&mut self, config: Config, actions: &mut Vec<Action>) {
        self.config = config;
        for pool in &self.config.pools {
            self.resources_ever.insert(pool.resource.to_string());
            let options = options(pool);
            match self.links.iter_mut().find(|served| served.resource == pool.resource) {
                Some(served) => {
                    actions.extend(served.link.reopen());
                    if std::mem::replace(&mut served.options, options) != options {
                        actions.extend(served.link.register_again(Duration::ZERO));
                    }
                }
                None => {
                    let link = Link::new(self.pools_ever);
                    let resource = pool.resource.clone();
                    self.links.push(Served { pool: self.pools_ever, resource, options, link });
                    self.pools_ever += 1;
                }
            }
        }
        let is_served =
            |resource: &ResourceName| self.config.pools.iter().any(|pool| pool.resource == *resource);
        for served in self.links.iter_mut().filter(|served| !is_served(&served.resource)) {
            served.link.close(actions);
        }
    }

    /// Brings the offer up to date, and tells.
    fn offer(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Some(inventory) = &self.inventory else { return };
        let before = self.offer.pools().clone();
        let due = self.offer.update(&self.config, inventory, &self.held, now);
        for pool in &self.offer.pools().pools {
            let resource = &pool.config.resource;
            let Some(served) = self.links.iter_mut().find(|served| served.resource == *resource) else {
                continue;
            };
            let earlier = before.pools.iter().find(|before| before.config.resource == *resource);
            // What an endpoint answers from must be in place before the kubelet hears of it.
            if !earlier.is_some_and(|earlier| earlier.holds_the_same(pool)) {
                actions.push(Action::Take(served.pool));
            }
            served.link.offer(advertised(pool), actions);
        }
        actions.extend(due.map(Action::WakeAt));
    }
}

/// What the kubelet is told that the pool wants.
pub(super) fn options(pool: &PoolConfig) -> PluginOptions {
    PluginOptions {
        preferred_allocation: !pool.allocation_policy.is_empty(),
        pre_start: pool.pre_start_check,
    }
}

/// The list of a pool, sorted by id; a shared device is as many devices to the kubelet as there are shares.
fn advertised(pool: &Pool) -> DeviceList {
    if pool.waits_for.is_some() {
        return DeviceList::from([]);
    }
    let ids = |id: &DeviceId| match pool.config.replicas {
        1 => vec![id.to_string()],
        replicas => (0..replicas).map(|share| format!("{id}::{share}")).collect(),
    };
    let advertise = |member: &Member| {
        let healthy = member.health.is_healthy();
        let numa_node = member.device.numa_node.filter(|_| !pool.config.exclude_topology);
        ids(&member.device.id).into_iter().map(move |id| Advertised { id, healthy, numa_node })
    };
    pool.members.iter().flat_map(advertise).collect()
}
