//! OpenMetrics of the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::crd::{KaePolicyStatus, State, condition};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    state: &'static str,
}

/// What is counted. A clone counts into the same.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    passes: Family<Outcome, Counter>,
    last_success: Gauge<f64, AtomicU64>,
    is_policy_ready: Gauge,
    is_nfd_seen: Gauge,
    is_leader: Gauge,
    nodes: Family<Kind, Gauge>,
    upgrades: Family<Phase, Gauge>,
    registry: Registry,
    /// Everything that is watched has been listed, or another replica leads.
    is_up: AtomicBool,
    failures_in_a_row: AtomicU32,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("kae_operator");
        registry.register("build", "The program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let passes = Family::<Outcome, Counter>::default();
        for outcome in ["done", "failed"] {
            let _ = passes.get_or_create(&Outcome { outcome });
        }
        registry.register("reconciles", "Looks at a policy, by how they ended", Family::clone(&passes));
        let last_success = Gauge::<f64, AtomicU64>::default();
        registry.register(
            "reconcile_last_success_timestamp_seconds",
            "When a look at a policy last ended well",
            Gauge::clone(&last_success),
        );
        let gauge = |registry: &mut Registry, name, help| {
            let gauge = Gauge::<i64>::default();
            registry.register(name, help, Gauge::clone(&gauge));
            gauge
        };
        let is_policy_ready =
            gauge(&mut registry, "policy_ready", "1 while all that the policy asks for is there");
        let is_nfd_seen = gauge(
            &mut registry,
            "nfd_labels_seen",
            "1 while some node has a label of Node Feature Discovery",
        );
        let is_leader = gauge(&mut registry, "leader", "1 while this replica acts");
        let nodes = Family::default();
        registry.register(
            "nodes",
            "Nodes with an engine, by its kind; `kae` are those that are managed",
            Family::clone(&nodes),
        );
        let upgrades = Family::default();
        registry.register(
            "driver_upgrades",
            "Nodes by the state of their driver's upgrade",
            Family::clone(&upgrades),
        );
        Self(Arc::new(Counted {
            passes,
            last_success,
            is_policy_ready,
            is_nfd_seen,
            is_leader,
            nodes,
            upgrades,
            registry,
            is_up: AtomicBool::new(false),
            failures_in_a_row: AtomicU32::new(0),
        }))
    }
}

impl Metrics {
    /// Of what [`Self::render`] writes.
    pub const CONTENT_TYPE: &str = crate::observe::Metrics::CONTENT_TYPE;

    /// The operator is ready for its work, or stands by.
    pub fn ready(&self) {
        self.0.is_up.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub fn is_ready(&self) -> bool {
        self.0.is_up.load(Ordering::Relaxed)
    }

    /// This replica acts from now on.
    pub fn leads(&self) {
        self.0.is_leader.set(1);
    }

    /// A look at a policy has ended.
    pub fn passed(&self, is_good: bool) {
        self.0.passes.get_or_create(&Outcome { outcome: if is_good { "done" } else { "failed" } }).inc();
        if is_good {
            self.0.failures_in_a_row.store(0, Ordering::Relaxed);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.0.last_success.set(now.as_secs_f64());
        } else {
            self.0.failures_in_a_row.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Looks that failed since the last good one.
    pub fn failures_in_a_row(&self) -> u32 {
        self.0.failures_in_a_row.load(Ordering::Relaxed)
    }

    /// The policy that is followed has this status.
    pub fn judged(&self, status: &KaePolicyStatus) {
        self.0.is_policy_ready.set(i64::from(status.state != Some(State::NotReady)));
        let holds = |kind| status.conditions.iter().any(|c| c.type_ == kind && c.status == "True");
        self.0.is_nfd_seen.set(i64::from(holds(condition::NFD_AVAILABLE)));
        let nodes = status.nodes;
        for (kind, count) in [
            ("kae", nodes.kae),
            ("hpre", nodes.hpre),
            ("sec", nodes.sec),
            ("zip", nodes.zip),
            ("opted_out", nodes.opted_out),
        ] {
            self.0.nodes.get_or_create(&Kind { kind }).set(i64::from(count));
        }
        let upgrade = status.upgrade.clone().unwrap_or_default();
        for (state, count) in [
            ("in_progress", upgrade.in_progress),
            ("done", upgrade.done),
            ("failed", upgrade.failed),
            ("pending", upgrade.pending),
        ] {
            self.0.upgrades.get_or_create(&Phase { state }).set(i64::from(count));
        }
    }

    /// Everything as text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // A string takes whatever is written.
        let _ = encode_registry(&mut text, &self.0.registry);
        let _ = encode_eof(&mut text);
        text
    }
}
