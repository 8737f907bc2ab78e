//! OpenMetrics. What happens is counted where it happens; what is, is asked for at each scrape, so that nothing of a pool
//! that is gone stays behind.
//!
//! Labels are bounded: resources of the config, and words of this file.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::Report;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    resource: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadOutcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Devices {
    resource: String,
    health: &'static str,
}

/// How an Allocate ended.
pub const ALLOCATED: &str = "allocated";
/// How a registration ended.
const REGISTRATION_OUTCOMES: [&str; 2] = ["registered", "failed"];

/// How reading the config again ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// It is served.
    Applied,
    /// It is served but for pools that have an error.
    Partly,
    /// It cannot be used, and the last one is served on.
    Refused,
    /// It is the same.
    Unchanged,
}

impl Reload {
    const ALL: [Self; 4] = [Self::Applied, Self::Partly, Self::Refused, Self::Unchanged];

    fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Partly => "partly",
            Self::Refused => "refused",
            Self::Unchanged => "unchanged",
        }
    }
}

/// What is counted. A clone counts into the same.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    registrations: Family<Outcome, Counter>,
    kubelet_restarts: Counter,
    allocations: Family<Outcome, Histogram, fn() -> Histogram>,
    without_iommu: Family<OfResource, Counter>,
    scans: Histogram,
    reloads: Family<ReloadOutcome, Counter>,
    registry: Registry,
}

/// From half a millisecond to ten seconds.
fn seconds() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("pcidp");
        let registrations = Family::default();
        registry.register(
            "registrations",
            "Registrations of a pool with the kubelet",
            Family::clone(&registrations),
        );
        let kubelet_restarts = Counter::default();
        registry.register(
            "kubelet_restarts",
            "How often another kubelet's socket took the place of the one before",
            Counter::clone(&kubelet_restarts),
        );
        let allocations = Family::new_with_constructor(seconds as fn() -> Histogram);
        registry.register_with_unit(
            "allocate_duration",
            "How long calls of Allocate took, by how they ended",
            Unit::Seconds,
            Family::clone(&allocations),
        );
        let without_iommu = Family::default();
        registry.register(
            "devices_without_iommu_handed_out",
            "Devices that were handed over though no IOMMU guards the node's memory from them",
            Family::clone(&without_iommu),
        );
        let scans = seconds();
        registry.register_with_unit(
            "scan_duration",
            "How long looks at the machine took",
            Unit::Seconds,
            Histogram::clone(&scans),
        );
        let reloads = Family::<ReloadOutcome, Counter>::default();
        for outcome in Reload::ALL {
            let _ = reloads.get_or_create(&ReloadOutcome { outcome: outcome.as_str() });
        }
        registry.register(
            "config_reloads",
            "How often the config was read again, by how that ended",
            Family::clone(&reloads),
        );
        let counted =
            Counted { registrations, kubelet_restarts, allocations, without_iommu, scans, reloads, registry };
        Self(Arc::new(counted))
    }
}

impl Metrics {
    /// Of what [`Self::render`] writes.
    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// A registration has ended.
    pub fn registration(&self, resource: &impl ToString, accepted: bool) {
        let outcome = REGISTRATION_OUTCOMES[usize::from(!accepted)];
        self.0.registrations.get_or_create(&Outcome { resource: resource.to_string(), outcome }).inc();
    }

    /// Another kubelet is there.
    pub fn kubelet_restarted(&self) {
        self.0.kubelet_restarts.inc();
    }

    /// An Allocate has ended: [`ALLOCATED`], or the word for its refusal.
    pub fn allocation(&self, resource: &impl ToString, outcome: &'static str, took: Duration) {
        let labels = Outcome { resource: resource.to_string(), outcome };
        self.0.allocations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A device without an IOMMU was handed over.
    pub fn without_iommu(&self, resource: &impl ToString) {
        self.0.without_iommu.get_or_create(&OfResource { resource: resource.to_string() }).inc();
    }

    /// A look at the machine has ended.
    pub fn scan(&self, took: Duration) {
        self.0.scans.observe(took.as_secs_f64());
    }

    /// The config was read again.
    pub fn reload(&self, outcome: Reload) {
        self.0.reloads.get_or_create(&ReloadOutcome { outcome: outcome.as_str() }).inc();
    }

    /// A pool is gone, and what was counted of it goes, too.
    pub fn forget(&self, resource: &impl ToString, refusals: &[&'static str]) {
        let resource = resource.to_string();
        for outcome in REGISTRATION_OUTCOMES {
            self.0.registrations.remove(&Outcome { resource: resource.clone(), outcome });
        }
        for &outcome in refusals.iter().chain([&ALLOCATED]) {
            self.0.allocations.remove(&Outcome { resource: resource.clone(), outcome });
        }
        self.0.without_iommu.remove(&OfResource { resource });
    }

    /// Everything as text.
    pub fn render(&self, report: &Report) -> String {
        let mut text = String::new();
        // A string takes whatever is written.
        let _ = encode_registry(&mut text, &self.0.registry);
        let _ = encode_registry(&mut text, &of_report(report));
        let _ = encode_eof(&mut text);
        text
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What is.
fn of_report(report: &Report) -> Registry {
    let mut registry = Registry::with_prefix("pcidp");
    let build = Info::new([("version", report.version.clone())]);
    registry.register("build", "The program", build);
    if let Some(hash) = &report.config.hash {
        registry.register("config", "The config that is served", Info::new([("hash", hash.clone())]));
    }
    let devices = Family::<Devices, Gauge>::default();
    let streams = Family::<OfResource, Gauge>::default();
    for pool in &report.pools {
        let of = |health| Devices { resource: pool.resource.clone(), health };
        devices.get_or_create(&of("healthy")).set(count(pool.healthy));
        devices.get_or_create(&of("unhealthy")).set(count(pool.devices.saturating_sub(pool.healthy)));
        streams.get_or_create(&OfResource { resource: pool.resource.clone() }).set(count(pool.streams));
    }
    registry.register("devices", "Devices of a pool", devices);
    registry.register("open_streams", "Streams of the kubelet that a pool feeds", streams);
    let gauge = |number: usize| {
        let gauge = Gauge::<i64>::default();
        gauge.set(count(number));
        gauge
    };
    registry.register("notes", "Parts of the machine that could not be read", gauge(report.notes.len()));
    registry.register(
        "refused_pools",
        "Pools of the config that have an error",
        gauge(report.config.refused.len()),
    );
    registry.register(
        "config_unusable",
        "1 while the config that is there cannot be used, so that the last one is served on",
        gauge(usize::from(report.config.error.is_some())),
    );
    registry.register(
        "ready",
        "1 while the plugin does what its config asks for; /readyz says why not",
        gauge(usize::from(report.unready().is_empty())),
    );
    registry
}
