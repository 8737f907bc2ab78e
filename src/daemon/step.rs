//! The life of the plugin: one state, one pure step.
//!
//! Each pool has a link to the kubelet:
//!
//! ```text
//!            first device           Bound                 Registered              stream opened
//!   Waiting ──────────────▶ Unbound ─────▶ Registering ────────────▶ Registered ───────────────▶ Streaming
//!                           │     ▲          ▲      │ refused            │ no stream               │
//!                   not     └─────┤          │      ▼                    ▼ within 30 s             │ stream
//!                   bound:  timer │          └── Paused ◀───────────────┘                         │ lost
//!                                 │     timer, or                                                  │
//!                                 │     a new kubelet.sock                                         ▼
//!          own socket gone, from every phase               Registering again, at once (then with back-off)
//! ```
//!
//! A lost stream means: register again at once, and only back off when that does not last. When an older instance's
//! stream ends, the kubelet closes the newer one's connection too and counts the resource as unhealthy (seen with
//! kubelet 1.34.4), and only a registration undoes that. It comes [`AFTER_LOSS`] later: the kubelet closes the connection
//! before it marks the resource, and a registration that overtakes the mark is marked too.
//!
//! Every change of phase begins a new epoch. Timers and answers carry the epoch they belong to; a late one is ignored.

use std::time::Duration;

use crate::config::Config;
use crate::kubelet::{Advertised, DeviceList, SocketIdentity};
use crate::model::{DeviceId, Inventory};
use crate::pool::{Member, Pool, Pools, assign};

/// How long a registration after a lost stream waits.
pub const AFTER_LOSS: Duration = Duration::from_millis(10);
/// How long the kubelet may take to open a stream after a registration before the pool registers again.
pub const STREAM_LIMIT: Duration = Duration::from_secs(30);
/// How long a stream must last for the failures before it to be forgotten.
pub const STREAM_LASTS: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What the daemon knows.
#[derive(Debug, Clone)]
pub struct State {
    config: Config,
    kubelet: Option<SocketIdentity>,
    inventory: Inventory,
    pools: Pools,
    links: Vec<Link>,
}

/// One pool's link to the kubelet.
#[derive(Debug, Clone)]
struct Link {
    position: usize,
    phase: Phase,
    epoch: u64,
    list: DeviceList,
    streams: usize,
    /// Failures in a row.
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The pool never had a device.
    Waiting,
    /// It needs a socket.
    Unbound,
    /// A registration is under way. Whether a stream was lost meanwhile, so that another one is due; and whether
    /// another kubelet came, so that a refusal is the old one's and counts for nothing.
    Registering { lost: bool, renewed: bool },
    /// The last registration failed.
    Paused,
    /// This kubelet has accepted it.
    Registered { with: Option<SocketIdentity> },
    /// And listens.
    Streaming { with: Option<SocketIdentity> },
}

/// What happened. A pool is named by its position among the pools that are served.
#[derive(Debug, Clone)]
pub enum Event {
    /// The machine was looked at.
    Scanned(Inventory),
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
}

impl State {
    /// Nothing is known yet.
    pub fn new(config: Config) -> Self {
        let link = |position| Link {
            position,
            phase: Phase::Waiting,
            epoch: 0,
            list: DeviceList::from([]),
            streams: 0,
            failures: 0,
        };
        let links = (0..config.pools.len()).map(link).collect();
        Self { config, kubelet: None, inventory: Inventory::default(), pools: Pools::default(), links }
    }

    /// The pools as they are now.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }
}

/// Takes one event.
pub fn step(mut state: State, event: Event) -> (State, Vec<Action>) {
    let mut actions = Vec::new();
    match event {
        Event::Scanned(inventory) => state.scanned(inventory, &mut actions),
        // Other sockets come and go too; that a kubelet is still the same must not shorten anybody's pause.
        Event::Kubelet(identity) if identity == state.kubelet => {}
        Event::Kubelet(identity) => {
            state.kubelet = identity;
            for link in &mut state.links {
                actions.extend(link.kubelet(identity));
            }
        }
        Event::Bound { pool, epoch, bound } => {
            actions.extend(state.link(pool).and_then(|link| link.bound(epoch, bound)));
        }
        Event::SocketLost(pool) => actions.extend(state.link(pool).and_then(Link::socket_lost)),
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
    (state, actions)
}

impl State {
    fn link(&mut self, pool: usize) -> Option<&mut Link> {
        self.links.get_mut(pool)
    }

    fn scanned(&mut self, inventory: Inventory, actions: &mut Vec<Action>) {
        self.inventory = inventory.shared_with(&self.inventory);
        let before = std::mem::replace(&mut self.pools, assign(&self.config, &self.inventory));
        for (pool, link) in self.pools.pools.iter().zip(&mut self.links) {
            // What an endpoint answers from must be in place before the kubelet hears of it.
            if !before.pools.get(link.position).is_some_and(|before| before.holds_the_same(pool)) {
                actions.push(Action::Take(link.position));
            }
            let list = advertised(pool);
            if link.list != list {
                link.list = list;
                actions.push(Action::Publish(link.position, link.list.clone()));
            }
            if link.phase == Phase::Waiting && !link.list.is_empty() {
                actions.push(link.bind());
            }
        }
    }
}

impl Link {
    fn enter(&mut self, phase: Phase) -> u64 {
        self.phase = phase;
        self.epoch += 1;
        self.epoch
    }

    fn bind(&mut self) -> Action {
        let epoch = self.enter(Phase::Unbound);
        Action::Bind { pool: self.position, epoch }
    }

    fn register(&mut self, after: Duration) -> Action {
        let epoch = self.enter(Phase::Registering { lost: false, renewed: false });
        Action::Register { pool: self.position, epoch, after }
    }

    fn wait(&mut self, phase: Phase, after: Duration) -> Action {
        let epoch = self.enter(phase);
        Action::Timer { pool: self.position, epoch, after }
    }

    fn back_off(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(self.failures.min(16)));
        self.failures += 1;
        pause.min(LONGEST_PAUSE)
    }

    fn pause(&mut self, phase: Phase) -> Action {
        let after = self.back_off();
        self.wait(phase, after)
    }

    /// The first loss after a lasting stream is answered at once.
    fn register_after_loss(&mut self) -> Action {
        let pause = self.back_off();
        self.register(if self.failures == 1 { AFTER_LOSS } else { pause })
    }

    fn kubelet(&mut self, identity: Option<SocketIdentity>) -> Option<Action> {
        let is_new = |with: Option<SocketIdentity>| identity.is_some() && with != identity;
        match &mut self.phase {
            Phase::Paused if identity.is_some() => {
                self.failures = 0;
                Some(self.register(Duration::ZERO))
            }
            Phase::Registered { with } | Phase::Streaming { with } if is_new(*with) => {
                self.failures = 0;
                Some(self.register(Duration::ZERO))
            }
            // An answer tells which kubelet was asked, but a refusal does not.
            Phase::Registering { renewed, .. } => {
                *renewed = identity.is_some();
                None
            }
            _ => None,
        }
    }

    fn bound(&mut self, epoch: u64, bound: bool) -> Option<Action> {
        if epoch != self.epoch || self.phase != Phase::Unbound {
            return None;
        }
        self.streams = 0;
        Some(if bound { self.register(Duration::ZERO) } else { self.pause(Phase::Unbound) })
    }

    fn socket_lost(&mut self) -> Option<Action> {
        (!matches!(self.phase, Phase::Waiting | Phase::Unbound)).then(|| self.bind())
    }

    fn answered(
        &mut self,
        epoch: u64,
        accepted: Option<Option<SocketIdentity>>,
        kubelet: Option<SocketIdentity>,
    ) -> Option<Action> {
        let Phase::Registering { lost, renewed } = self.phase else {
            return None;
        };
        if epoch != self.epoch {
            return None;
        }
        let Some(with) = accepted else {
            if renewed {
                self.failures = 0;
                return Some(self.register(Duration::ZERO));
            }
            return Some(self.pause(Phase::Paused));
        };
        // Another kubelet may have come while this one answered.
        if lost || (kubelet.is_some() && kubelet != with) {
            return Some(self.register_after_loss());
        }
        Some(match self.streams {
            0 => self.wait(Phase::Registered { with }, STREAM_LIMIT),
            _ => self.wait(Phase::Streaming { with }, STREAM_LASTS),
        })
    }

    fn stream_opened(&mut self, open: usize) -> Option<Action> {
        self.streams = open;
        match self.phase {
            Phase::Registered { with } => Some(self.wait(Phase::Streaming { with }, STREAM_LASTS)),
            _ => None,
        }
    }

    fn stream_closed(&mut self, open: usize) -> Option<Action> {
        self.streams = open;
        if open > 0 {
            // Somebody else listened too, or an older stream of the kubelet's has ended. Where that took the newer one
            // with it, it is closed as well, and that is the news.
            return None;
        }
        match &mut self.phase {
            Phase::Registered { .. } | Phase::Streaming { .. } => Some(self.register_after_loss()),
            // The kubelet dials back while it registers, so the stream that was lost may be the new one.
            Phase::Registering { lost, .. } => {
                *lost = true;
                None
            }
            Phase::Waiting | Phase::Unbound | Phase::Paused => None,
        }
    }

    fn timer_due(&mut self, epoch: u64) -> Option<Action> {
        if epoch != self.epoch {
            return None;
        }
        match self.phase {
            Phase::Unbound => Some(self.bind()),
            Phase::Paused => Some(self.register(Duration::ZERO)),
            Phase::Registered { .. } => Some(self.pause(Phase::Paused)),
            Phase::Streaming { .. } => {
                self.failures = 0;
                None
            }
            Phase::Waiting | Phase::Registering { .. } => None,
        }
    }
}

/// The list of a pool, sorted by id; a shared device is as many devices to the kubelet as there are shares.
fn advertised(pool: &Pool) -> DeviceList {
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
