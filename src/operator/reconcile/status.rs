//! What is said of a policy. Pure: what a look has found in, the status out.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::operator::crd::{
    Component, KaePolicy, KaePolicyStatus, NodeCounts, State, UpdateStrategy, UpgradeStatus, condition,
    reason,
};
use crate::operator::events::shorten;

/// What a look at the cluster has found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) nodes: NodeCounts,
    /// Node Feature Discovery has been at some node.
    pub(super) is_discovered: bool,
    /// As the API server has them.
    pub(super) driver: Option<DaemonSet>,
    pub(super) plugin: Option<DaemonSet>,
    /// The driver is being removed.
    pub(super) cleanup: Option<DaemonSet>,
    /// Nodes on which the installer failed, and what it said.
    pub(super) failed_drivers: Vec<(String, String)>,
    pub(super) config_error: Option<String>,
    pub(super) failures: Vec<String>,
    pub(super) upgrade: Option<UpgradeStatus>,
    pub(super) is_deleting: bool,
}

/// A condition before it has its time.
struct Fact {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

fn fact(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Fact {
    Fact { kind, holds, reason, message: message.into() }
}

/// The longest message of a condition, in bytes; the API server takes 32768.
const LONGEST_MESSAGE: usize = 4096;

/// Judges. What did not change keeps its time.
pub(super) fn judge(
    policy: &KaePolicy,
    namespace: &str,
    findings: Findings,
    now: Timestamp,
) -> KaePolicyStatus {
    let is_disabled = policy.spec.operator.enabled().next().is_none();
    let driver = of_component(findings.driver.as_ref(), policy.spec.driver.enabled && !is_disabled, true);
    let plugin_waits = policy.spec.daemon_sets.update_strategy == UpdateStrategy::OnDelete;
    let plugin = of_component(
        findings.plugin.as_ref(),
        policy.spec.device_plugin.enabled && !is_disabled,
        plugin_waits,
    );
    let mut failures = findings.failures;
    failures.extend(findings.config_error.clone());
    failures.extend(findings.failed_drivers.iter().map(|(node, why)| format!("{node}: {why}")));

    let nfd = match findings.is_discovered {
        true => fact(
            condition::NFD_AVAILABLE,
            true,
            reason::NFD_LABELS_SEEN,
            "nodes have labels of Node Feature Discovery",
        ),
        false => fact(
            condition::NFD_AVAILABLE,
            false,
            reason::NFD_LABELS_MISSING,
            "no node has a label of Node Feature Discovery; install it, or wait until it has looked at the nodes",
        ),
    };
    let mut driver_fact = driver.fact(condition::DRIVER_READY, "driver");
    if let Some((node, why)) = findings.failed_drivers.first() {
        let message = format!("on {} nodes, such as {node}: {why}", findings.failed_drivers.len());
        driver_fact = fact(condition::DRIVER_READY, false, reason::DRIVER_INSTALL_FAILED, message);
    }
    if findings.cleanup.is_some() {
        driver_fact = fact(condition::DRIVER_READY, false, reason::DELETING, "the driver is being removed");
    }
    let mut plugin_fact = plugin.fact(condition::DEVICE_PLUGIN_READY, "device plugin");
    if let Some(error) = &findings.config_error {
        plugin_fact = fact(condition::DEVICE_PLUGIN_READY, false, reason::INVALID_CONFIG, error.clone());
    }

    let (is_ready, why, message) = if findings.is_deleting {
        (false, reason::DELETING, "the policy is being deleted".to_owned())
    } else if !failures.is_empty() {
        let why = match (&findings.config_error, findings.failed_drivers.is_empty()) {
            (Some(_), _) => reason::INVALID_CONFIG,
            (None, false) => reason::DRIVER_INSTALL_FAILED,
            (None, true) => reason::RECONCILE_FAILED,
        };
        (false, why, failures.join("\n"))
    } else if is_disabled {
        (true, reason::DISABLED, "no engine is managed".to_owned())
    } else if findings.cleanup.is_some() {
        (false, reason::OPERAND_NOT_READY, "the driver is being removed".to_owned())
    } else if !findings.is_discovered {
        (false, reason::NFD_LABELS_MISSING, nfd.message.clone())
    } else if !driver.is_ready || !plugin.is_ready {
        let notes = [&driver_fact, &plugin_fact].into_iter().filter(|fact| !fact.holds);
        let notes: Vec<&str> = notes.map(|fact| fact.message.as_str()).collect();
        (false, reason::OPERAND_NOT_READY, notes.join("; "))
    } else if findings.nodes.kae == 0 {
        (true, reason::NO_KAE_NODES, "no node has an engine that is managed".to_owned())
    } else {
        (true, reason::RECONCILED, "all components are ready".to_owned())
    };
    let is_progressing = !is_ready && failures.is_empty();
    let facts = [
        fact(condition::READY, is_ready, why, message.clone()),
        fact(
            condition::PROGRESSING,
            is_progressing,
            why,
            if is_progressing { message } else { "nothing is on its way".to_owned() },
        ),
        fact(
            condition::DEGRADED,
            !failures.is_empty(),
            if failures.is_empty() { reason::RECONCILED } else { why },
            if failures.is_empty() { "nothing failed".to_owned() } else { failures.join("\n") },
        ),
        driver_fact,
        plugin_fact,
        nfd,
    ];
    let before = policy.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let generation = policy.metadata.generation;
    let state = match (is_ready, is_disabled) {
        (true, true) => State::Disabled,
        (true, false) => State::Ready,
        (false, _) => State::NotReady,
    };
    let cleanup = findings.cleanup.as_ref().map(|set| of_component(Some(set), true, true));
    KaePolicyStatus {
        state: Some(state),
        observed_generation: generation,
        namespace: Some(namespace.to_owned()),
        conditions: facts.into_iter().map(|fact| timed(fact, before, generation, now)).collect(),
        nodes: findings.nodes,
        components: [Some(driver), Some(plugin), cleanup]
            .into_iter()
            .flatten()
            .filter_map(|of| of.component)
            .collect(),
        upgrade: findings.upgrade,
    }
}

/// The status of a policy that is not followed.
pub(super) fn ignored(policy: &KaePolicy, followed: &str, now: Timestamp) -> KaePolicyStatus {
    let before = policy.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let generation = policy.metadata.generation;
    let message = format!("only the policy named {followed} is followed");
    let fact = fact(condition::READY, false, reason::DUPLICATE_POLICY, message);
    KaePolicyStatus {
        state: Some(State::Ignored),
        observed_generation: generation,
        conditions: vec![timed(fact, before, generation, now)],
        ..KaePolicyStatus::default()
    }
}

fn timed(fact: Fact, before: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
    let status = if fact.holds { "True" } else { "False" };
    let same = before.iter().find(|condition| condition.type_ == fact.kind && condition.status == status);
    let mut message = fact.message;
    shorten(&mut message, LONGEST_MESSAGE);
    Condition {
        type_: fact.kind.to_owned(),
        status: status.to_owned(),
        reason: fact.reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: same.map_or(Time(now), |condition| condition.last_transition_time.clone()),
    }
}

struct OfComponent {
    component: Option<Component>,
    is_wanted: bool,
    is_ready: bool,
}

impl OfComponent {
    fn fact(&self, kind: &'static str, name: &str) -> Fact {
        match &self.component {
            _ if !self.is_wanted => fact(kind, false, reason::DISABLED, format!("the {name} is not wanted")),
            None => fact(kind, false, reason::OPERAND_NOT_READY, format!("the {name} is not there yet")),
            Some(component) => {
                let mut message =
                    format!("the {name} is ready on {} of {} nodes", component.ready, component.desired);
                if !component.message.is_empty() {
                    message = format!("{message}: {}", component.message);
                }
                let why = if self.is_ready { reason::RECONCILED } else { reason::OPERAND_NOT_READY };
                fact(kind, self.is_ready, why, message)
            }
        }
    }
}

/// `waits_to_be_deleted`: its pods are replaced when somebody deletes them, so that older ones are no fault.
fn of_component(set: Option<&DaemonSet>, is_wanted: bool, waits_to_be_deleted: bool) -> OfComponent {
    let Some(set) = set.filter(|_| is_wanted) else {
        return OfComponent { component: None, is_wanted, is_ready: !is_wanted };
    };
    let status = set.status.clone().unwrap_or_default();
    let is_observed = status.observed_generation >= set.metadata.generation;
    let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let image = pod.and_then(|pod| pod.containers.first()?.image.clone()).unwrap_or_default();
    let updated = status.updated_number_scheduled.unwrap_or_default();
    let older = status.desired_number_scheduled.saturating_sub(updated);
    let message = if !is_observed {
        "the change was not looked at yet".to_owned()
    } else if older > 0 && waits_to_be_deleted {
        format!("{older} nodes run an older form until their pods are deleted")
    } else {
        String::new()
    };
    let is_ready = is_observed
        && status.number_ready >= status.desired_number_scheduled
        && (older == 0 || waits_to_be_deleted);
    let component = Component {
        name: set.metadata.name.clone().unwrap_or_default(),
        desired: status.desired_number_scheduled,
        updated,
        ready: status.number_ready,
        unavailable: status.number_unavailable.unwrap_or_default(),
        image,
        message,
    };
    OfComponent { component: Some(component), is_wanted, is_ready }
}
