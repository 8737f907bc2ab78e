//! A pool's link to the kubelet.
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
//!
//! A pool that the config does not have any more is told to be empty, from whatever phase; [`CLOSES_AFTER`] later its socket
//! is closed.

use std::time::Duration;

use super::step::Action;
use crate::kubelet::{DeviceList, SocketIdentity};

/// How long a registration after a lost stream waits.
pub const AFTER_LOSS: Duration = Duration::from_millis(10);
/// How long the kubelet may take to open a stream after a registration before the pool registers again.
pub const STREAM_LIMIT: Duration = Duration::from_secs(30);
/// How long a stream must last for the failures before it to be forgotten.
pub const STREAM_LASTS: Duration = Duration::from_secs(1);
/// How long the streams of a pool that is given up have to tell that it is empty.
pub const CLOSES_AFTER: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// One pool's link to the kubelet.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pool: usize,
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
    /// A registration is under way. Whether a stream was lost meanwhile, so that another one is due; whether another
    /// kubelet came, so that a refusal is the old one's and counts for nothing; and the pause before it.
    Registering { lost: bool, renewed: bool, after: Duration },
    /// The last registration failed.
    Paused,
    /// This kubelet has accepted it.
    Registered { with: Option<SocketIdentity> },
    /// And listens.
    Streaming { with: Option<SocketIdentity> },
    /// The pool is given up.
    Closing,
}

impl Link {
    pub(super) fn new(pool: usize) -> Self {
        Self { pool, phase: Phase::Waiting, epoch: 0, list: DeviceList::from([]), streams: 0, failures: 0 }
    }

    /// Whether the kubelet listens.
    pub(super) fn is_streaming(&self) -> bool {
        self.streams > 0 && matches!(self.phase, Phase::Streaming { .. } | Phase::Registered { .. })
    }

    /// Whether it has something to tell, and nobody who listens.
    pub(super) fn is_unheard(&self) -> bool {
        !self.is_streaming() && !matches!(self.phase, Phase::Waiting | Phase::Closing)
    }

    /// How many streams are open.
    pub(super) fn streams(&self) -> usize {
        self.streams
    }

    /// The word for its phase.
    pub(super) fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Waiting => "waiting for a device",
            Phase::Unbound => "without a socket",
            Phase::Registering { .. } => "registering",
            Phase::Paused => "refused, will register again",
            Phase::Registered { .. } => "registered, without a stream",
            Phase::Streaming { .. } => "registered",
            Phase::Closing => "closing",
        }
    }

    /// The pool has these devices now.
    pub(super) fn offer(&mut self, list: DeviceList, actions: &mut Vec<Action>) {
        if self.list != list {
            self.list = list;
            actions.push(Action::Publish(self.pool, DeviceList::clone(&self.list)));
        }
        if self.phase == Phase::Waiting && !self.list.is_empty() {
            actions.push(self.bind());
        }
    }

    /// The config does not have the pool any more.
    pub(super) fn close(&mut self, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Closing => {}
            Phase::Waiting => {
                self.enter(Phase::Closing);
                actions.push(Action::Close(self.pool));
            }
            _ => {
                self.offer(DeviceList::from([]), actions);
                actions.push(self.wait(Phase::Closing, CLOSES_AFTER));
            }
        }
    }

    /// The config has the pool again before it was closed.
    pub(super) fn reopen(&mut self) -> Option<Action> {
        (self.phase == Phase::Closing).then(|| self.bind())
    }

    /// What the kubelet knows of the pool is true no longer: its options, or, where another instance of the plugin that
    /// served the resource has ended, that it is served at all.
    pub(super) fn register_again(&mut self, after: Duration) -> Option<Action> {
        match &mut self.phase {
            Phase::Registered { .. } | Phase::Streaming { .. } => Some(self.register(after)),
            Phase::Registering { lost, .. } => {
                *lost = true;
                None
            }
            Phase::Waiting | Phase::Unbound | Phase::Paused | Phase::Closing => None,
        }
    }

    fn enter(&mut self, phase: Phase) -> u64 {
        self.phase = phase;
        self.epoch += 1;
        self.epoch
    }

    fn bind(&mut self) -> Action {
        let epoch = self.enter(Phase::Unbound);
        Action::Bind { pool: self.pool, epoch }
    }

    fn register(&mut self, after: Duration) -> Action {
        let epoch = self.enter(Phase::Registering { lost: false, renewed: false, after });
        Action::Register { pool: self.pool, epoch, after }
    }

    fn wait(&mut self, phase: Phase, after: Duration) -> Action {
        let epoch = self.enter(phase);
        Action::Timer { pool: self.pool, epoch, after }
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

    pub(super) fn kubelet(&mut self, identity: Option<SocketIdentity>) -> Option<Action> {
        let is_new = |with: Option<SocketIdentity>| identity.is_some() && with != identity;
        let asks_at_once = match &mut self.phase {
            Phase::Paused => identity.is_some(),
            Phase::Registered { with } | Phase::Streaming { with } => is_new(*with),
            Phase::Registering { after, .. } if *after > AFTER_LOSS => identity.is_some(),
            // An answer tells which kubelet was asked, but a refusal does not.
            Phase::Registering { renewed, .. } => {
                *renewed = identity.is_some();
                false
            }
            Phase::Waiting | Phase::Unbound | Phase::Closing => false,
        };
        // Whatever failed was the old one's doing.
        if asks_at_once || (identity.is_some() && self.phase == Phase::Unbound) {
            self.failures = 0;
        }
        asks_at_once.then(|| self.register(Duration::ZERO))
    }

    pub(super) fn bound(&mut self, epoch: u64, bound: bool) -> Option<Action> {
        if epoch != self.epoch || self.phase != Phase::Unbound {
            return None;
        }
        self.streams = 0;
        Some(if bound { self.register(Duration::ZERO) } else { self.pause(Phase::Unbound) })
    }

    pub(super) fn socket_lost(&mut self) -> Option<Action> {
        (!matches!(self.phase, Phase::Waiting | Phase::Unbound | Phase::Closing)).then(|| self.bind())
    }

    pub(super) fn answered(
        &mut self,
        epoch: u64,
        accepted: Option<Option<SocketIdentity>>,
        kubelet: Option<SocketIdentity>,
    ) -> Option<Action> {
        let Phase::Registering { lost, renewed, .. } = self.phase else {
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

    pub(super) fn stream_opened(&mut self, open: usize) -> Option<Action> {
        self.streams = open;
        match self.phase {
            Phase::Registered { with } => Some(self.wait(Phase::Streaming { with }, STREAM_LASTS)),
            _ => None,
        }
    }

    pub(super) fn stream_closed(&mut self, open: usize) -> Option<Action> {
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
            Phase::Waiting | Phase::Unbound | Phase::Paused | Phase::Closing => None,
        }
    }

    pub(super) fn timer_due(&mut self, epoch: u64) -> Option<Action> {
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
            Phase::Closing => Some(Action::Close(self.pool)),
            Phase::Waiting | Phase::Registering { .. } => None,
        }
    }
}
