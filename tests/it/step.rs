//! What holds for every life of the plugin: the pure step, played against a small world of events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::net::UnixListener;
use std::sync::OnceLock;
use std::time::Duration;

use pcidp::config::Config;
use pcidp::daemon::{AFTER_LOSS, Action, Event, State, step};
use pcidp::host::{Wanted, scan};
use pcidp::kubelet::SocketIdentity;
use pcidp::model::{Device, Inventory};
use pcidp::pool::Held;
use proptest::prelude::*;

use crate::machine::config;
use crate::node::host;

const POOLS: usize = 3;

/// Pools of two devices each.
fn pools() -> Config {
    let pool = |n: usize| {
        format!(
            r#"{{"resourceName":"p{n}","selectors":{{"pfNames":["ens1f0np0#{}-{}"]}}}}"#,
            2 * n,
            2 * n + 1
        )
    };
    let list: Vec<String> = (0..POOLS).map(pool).collect();
    config(&format!(r#"{{"resourceList":[{}]}}"#, list.join(",")))
}

/// The six VFs, scanned once.
fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let inventory = scan(&host("two-socket"), &Wanted::of(&pools()));
        let ours = |device: &&std::sync::Arc<Device>| device.id.as_str().starts_with("0000:17:01.");
        inventory.devices().iter().filter(ours).take(2 * POOLS).map(|device| (**device).clone()).collect()
    })
}

/// Those whose bit is set.
fn inventory(mask: u8) -> Inventory {
    let there = devices().iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
    Inventory::new(there.map(|(_, device)| device.clone()).collect(), Vec::new())
}

/// Three kubelets, one after the other.
fn kubelet(number: usize) -> SocketIdentity {
    static KUBELETS: OnceLock<(tempfile::TempDir, Vec<UnixListener>)> = OnceLock::new();
    let name = |number: usize| format!("{number}.sock");
    let (directory, _) = KUBELETS.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let sockets =
            (0..3).map(|number| UnixListener::bind(directory.path().join(name(number))).unwrap()).collect();
        (directory, sockets)
    });
    SocketIdentity::of(&directory.path().join(name(number))).unwrap()
}

#[derive(Debug, Clone)]
enum Op {
    Scan(u8),
    /// Another kubelet, or none; the plugin hears of it with `Tell`.
    Kubelet(Option<usize>),
    Tell,
    SocketLost(usize),
    /// Carries out one of the open actions; whether it goes well, and whether a stream comes of it.
    Perform(usize, bool, bool),
    Opened(usize),
    Closed(usize),
    /// An answer, a timer, a bound socket of an epoch that is over.
    Late(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<u8>().prop_map(Op::Scan),
        1 => prop::option::of(0usize..3).prop_map(Op::Kubelet),
        2 => Just(Op::Tell),
        1 => (0..POOLS).prop_map(Op::SocketLost),
        8 => (any::<usize>(), any::<bool>(), any::<bool>()).prop_map(|(n, good, stream)| Op::Perform(n, good, stream)),
        1 => (0..POOLS).prop_map(Op::Opened),
        2 => (0..POOLS).prop_map(Op::Closed),
        1 => (0..POOLS).prop_map(Op::Late),
    ]
}

/// The environment of one plugin.
struct World {
    state: State,
    kubelet: Option<SocketIdentity>,
    /// The kubelet that the plugin has heard of.
    told: Option<SocketIdentity>,
    /// Actions that are still to be carried out, with the time at which they are due.
    open: Vec<(Duration, Action)>,
    now: Duration,
    streams: [usize; POOLS],
    /// The kubelet and the socket at which a pool is registered and listened to.
    heard_by: [Option<(SocketIdentity, u64)>; POOLS],
    /// Counts the sockets of a pool.
    sockets: [u64; POOLS],
    registrations: HashMap<usize, BTreeSet<u64>>,
    epochs: [u64; POOLS],
    published: Vec<Vec<String>>,
}

impl World {
    fn new() -> Self {
        Self {
            state: State::new(pools()),
            kubelet: None,
            told: None,
            open: Vec::new(),
            now: Duration::ZERO,
            streams: [0; POOLS],
            heard_by: [None; POOLS],
            sockets: [0; POOLS],
            registrations: HashMap::new(),
            epochs: [0; POOLS],
            published: vec![Vec::new(); POOLS],
        }
    }

    fn take(&mut self, event: Event) {
        let before = std::mem::replace(&mut self.state, State::new(Config::default()));
        let (state, actions) = step(before, event, self.now);
        self.state = state;
        let mut asked = false;
        for action in actions {
            let (pool, epoch, after) = match &action {
                Action::Take(_) => continue,
                Action::AskHolders => {
                    asked = true;
                    continue;
                }
                Action::WakeAt(time) => {
                    self.open.retain(|(_, action)| !matches!(action, Action::WakeAt(_)));
                    self.open.push((*time, action));
                    continue;
                }
                Action::Close(pool) => panic!("pool {pool} is in the config"),
                Action::Publish(pool, list) => {
                    self.published[*pool] = list.iter().map(|device| device.id.clone()).collect();
                    continue;
                }
                Action::Bind { pool, epoch } => (*pool, *epoch, Duration::ZERO),
                Action::Register { pool, epoch, after } => {
                    let new = self.registrations.entry(*pool).or_default().insert(*epoch);
                    assert!(new, "two registrations of pool {pool} in epoch {epoch}");
                    (*pool, *epoch, *after)
                }
                Action::Timer { pool, epoch, after } => (*pool, *epoch, *after),
            };
            assert!(epoch > self.epochs[pool], "an epoch of pool {pool} came again");
            self.epochs[pool] = epoch;
            self.open.push((self.now + after, action));
        }
        if asked {
            return self.take(Event::Held(Held::Known(BTreeMap::new())));
        }
        for (pool, published) in self.published.iter().enumerate() {
            let assigned: Vec<String> = match self.state.pool(pool) {
                Some(pool) => pool.members.iter().map(|member| member.device.id.to_string()).collect(),
                None => Vec::new(),
            };
            assert_eq!(*published, assigned, "pool {pool} tells another list than it has");
        }
    }

    /// Takes an event that must have no effect.
    fn take_late(&mut self, event: Event) {
        let before = format!("{:?}", self.state);
        let (state, actions) = step(self.state.clone(), event.clone(), self.now);
        assert!(actions.is_empty(), "{event:?} had {actions:?}");
        assert_eq!(format!("{state:?}"), before, "{event:?} changed the state");
    }

    fn opened(&mut self, pool: usize) {
        self.streams[pool] += 1;
        self.take(Event::StreamOpened(pool, self.streams[pool]));
    }

    fn perform(&mut self, action: Action, good: bool, stream: bool) {
        match action {
            Action::Bind { pool, epoch } => {
                if self.epochs[pool] != epoch {
                    return;
                }
                // Whoever listened at the old socket hears no more.
                self.streams[pool] = 0;
                self.heard_by[pool] = None;
                self.sockets[pool] += 1;
                self.take(Event::Bound { pool, epoch, bound: good });
            }
            Action::Register { pool, epoch, .. } => {
                let accepted = self.kubelet.filter(|_| good);
                let answer = Event::Answered { pool, epoch, accepted: accepted.map(Some) };
                if self.epochs[pool] != epoch {
                    return self.take_late(answer);
                }
                if let Some(kubelet) = accepted.filter(|_| stream) {
                    self.heard_by[pool] = Some((kubelet, self.sockets[pool]));
                    self.opened(pool);
                }
                self.take(answer);
            }
            Action::Timer { pool, epoch, .. } => {
                let due = Event::TimerDue { pool, epoch };
                match self.epochs[pool] == epoch {
                    true => self.take(due),
                    false => self.take_late(due),
                }
            }
            Action::WakeAt(_) => self.take(Event::Woken),
            Action::Take(_) | Action::Publish(..) | Action::AskHolders | Action::Close(_) => {}
        }
    }

    /// Carries out the action of the first pool whose epoch is not over.
    fn perform_current(&mut self, good: bool) {
        let current = self.open.iter().position(|(_, action)| match action {
            Action::Bind { pool: 0, epoch }
            | Action::Register { pool: 0, epoch, .. }
            | Action::Timer { pool: 0, epoch, .. } => *epoch == self.epochs[0],
            _ => false,
        });
        let (_, action) = self.open.remove(current.unwrap());
        self.perform(action, good, good);
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Scan(mask) => self.take(Event::Scanned(inventory(mask))),
            Op::Kubelet(number) => self.kubelet = number.map(kubelet),
            // Sockets of others change too; then the same kubelet is told again.
            Op::Tell if self.told == self.kubelet => self.take_late(Event::Kubelet(self.kubelet)),
            Op::Tell => {
                self.told = self.kubelet;
                self.take(Event::Kubelet(self.kubelet));
            }
            Op::SocketLost(pool) => self.take(Event::SocketLost(pool)),
            Op::Perform(number, good, stream) => {
                if !self.open.is_empty() {
                    let (due, action) = self.open.remove(number % self.open.len());
                    self.now = self.now.max(due);
                    self.perform(action, good, stream);
                }
            }
            Op::Opened(pool) => {
                if self.sockets[pool] > 0 {
                    self.opened(pool);
                }
            }
            Op::Closed(pool) => {
                if self.streams[pool] > 0 {
                    self.streams[pool] -= 1;
                    self.heard_by[pool] = None;
                    self.take(Event::StreamClosed(pool, self.streams[pool]));
                }
            }
            Op::Late(pool) => {
                let epoch = self.epochs[pool].wrapping_sub(1);
                self.take_late(Event::Answered { pool, epoch, accepted: Some(self.kubelet) });
                self.take_late(Event::Answered { pool, epoch, accepted: None });
                self.take_late(Event::TimerDue { pool, epoch });
                self.take_late(Event::Bound { pool, epoch, bound: true });
            }
        }
    }

    /// From now on all goes well: whatever is due happens, in its order, and nothing else.
    fn calm(&mut self, mask: u8) {
        // Streams to kubelets that are gone end.
        self.kubelet = Some(kubelet(2));
        for pool in 0..POOLS {
            let heard = self.heard_by[pool].is_some_and(|(by, _)| Some(by) == self.kubelet);
            while self.streams[pool] > usize::from(heard) {
                self.streams[pool] -= 1;
                self.take(Event::StreamClosed(pool, self.streams[pool]));
            }
        }
        self.take(Event::Kubelet(self.kubelet));
        self.take(Event::Scanned(inventory(mask)));
        for round in 0.. {
            let Some(next) = (0..self.open.len()).min_by_key(|&position| self.open[position].0) else {
                break;
            };
            assert!(round < 500, "it never comes to rest: {:?}", self.open);
            let (due, action) = self.open.remove(next);
            self.now = self.now.max(due);
            self.perform(action, true, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    // REG-01, REG-02, REG-04, REG-05
    #[test]
    fn after_any_events_and_then_calm_every_pool_with_devices_streams(
        ops in prop::collection::vec(op(), 0..60),
        mask: u8,
    ) {
        let mut world = World::new();
        for op in ops {
            world.play(op);
        }
        world.calm(mask);
        for pool in 0..POOLS {
            if !world.published[pool].is_empty() {
                prop_assert_eq!(world.heard_by[pool], Some((kubelet(2), world.sockets[pool])), "pool {}", pool);
                prop_assert!(world.streams[pool] > 0);
            }
        }
    }
}

/// A world whose first pool streams.
fn streaming() -> World {
    let mut world = World::new();
    world.kubelet = Some(kubelet(0));
    world.take(Event::Kubelet(world.kubelet));
    world.take(Event::Scanned(inventory(0b1)));
    for _ in 0..2 {
        let (_, action) = world.open.remove(0);
        world.perform(action, true, true);
    }
    assert_eq!(world.streams[0], 1);
    world
}

/// How long the registration that is open now waits.
fn pause(world: &World) -> Duration {
    let pauses: Vec<Duration> = world
        .open
        .iter()
        .filter_map(|(_, action)| match action {
            Action::Register { epoch, after, .. } if *epoch == world.epochs[0] => Some(*after),
            _ => None,
        })
        .collect();
    assert_eq!(pauses.len(), 1, "{:?}", world.open);
    pauses[0]
}

// REG-01
#[test]
fn streams_that_are_lost_in_a_row_make_longer_and_longer_pauses() {
    let mut world = streaming();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        world.play(Op::Closed(0));
        pauses.push(pause(&world));
        world.perform_current(true);
    }
    assert_eq!(pauses[0], AFTER_LOSS);
    assert_eq!(pauses[1], Duration::from_millis(200));
    assert!(
        pauses.windows(2).all(|pair| pair[1] <= 2 * pair[0].max(Duration::from_millis(100))),
        "{pauses:?}"
    );
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert_eq!(pauses.last(), Some(&Duration::from_secs(10)));
    // One that lasts is forgiven.
    world.perform_current(true);
    world.play(Op::Closed(0));
    assert_eq!(pause(&world), AFTER_LOSS);
}

// REG-05
#[test]
fn a_kubelet_that_came_during_a_registration_is_asked_at_once_when_the_old_one_refuses() {
    let mut world = streaming();
    world.play(Op::Closed(0));
    world.take(Event::Kubelet(Some(kubelet(1))));
    world.perform_current(false);
    assert_eq!(pause(&world), Duration::ZERO);
}

// REG-05
#[test]
fn a_kubelet_that_comes_while_a_pool_pauses_is_asked_at_once() {
    let mut world = streaming();
    for _ in 0..6 {
        world.play(Op::Closed(0));
        world.perform_current(true);
    }
    world.play(Op::Closed(0));
    assert!(pause(&world) > Duration::from_secs(1));
    world.take(Event::Kubelet(Some(kubelet(1))));
    assert_eq!(pause(&world), Duration::ZERO);
}

// REG-05
#[test]
fn what_an_old_kubelet_refused_does_not_slow_down_a_pool_that_binds_for_the_new_one() {
    let mut world = streaming();
    world.play(Op::Closed(0));
    for _ in 0..16 {
        world.perform_current(false);
    }
    world.play(Op::SocketLost(0));
    world.take(Event::Kubelet(Some(kubelet(1))));
    world.perform_current(true);
    world.perform_current(false);
    let waits = world.open.iter().filter_map(|(_, action)| match action {
        Action::Timer { epoch, after, .. } if *epoch == world.epochs[0] => Some(*after),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [Duration::from_millis(100)]);
}
