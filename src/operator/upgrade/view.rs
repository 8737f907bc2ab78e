//! From objects of the API server to what is known of a node.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::facts::{Cordon, DriverPod, NodeFacts, PodFacts, State};
use super::{REASON, REVISION, SINCE, SKIP, STATE};
use crate::operator::cluster::FIELD_MANAGER;
use crate::operator::labels::Gate;

/// The label of a DaemonSet's pods and revisions
/// (<https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/api/apps/v1/types.go>).
const REVISION_HASH: &str = "controller-revision-hash";
/// Of pods that the kubelet makes from files.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// What resources of engines begin with.
const RESOURCES: &str = "openfuyao.com/kae.";

/// The hash of the newest revision of a DaemonSet.
pub(super) fn newest_revision(set: &DaemonSet, revisions: &[ControllerRevision]) -> Option<String> {
    let is_its = |revision: &&ControllerRevision| {
        revision.owner_references().iter().any(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
    };
    let newest = revisions.iter().filter(is_its).max_by_key(|revision| revision.revision)?;
    newest.labels().get(REVISION_HASH).cloned()
}

/// The driver's pod.
pub(super) fn driver_pod(pod: Option<&Pod>, revision: &str, failure: Option<String>) -> DriverPod {
    let Some(pod) = pod else { return DriverPod::Absent };
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    DriverPod::Present {
        name: pod.name_any(),
        is_newest: pod.labels().get(REVISION_HASH).map(String::as_str) == Some(revision),
        is_ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        is_leaving: pod.metadata.deletion_timestamp.is_some(),
        failure,
    }
}

/// What a pod's installer said when it failed last.
pub(super) fn failure(pod: &Pod) -> Option<String> {
    let steps = pod.status.as_ref()?.init_container_statuses.as_deref()?;
    steps.iter().find_map(|step| {
        let states = [step.state.as_ref(), step.last_state.as_ref()].into_iter().flatten();
        let ended =
            states.filter_map(|state| state.terminated.as_ref()).find(|ended| ended.exit_code != 0)?;
        Some(
            ended
                .message
                .clone()
                .unwrap_or_else(|| format!("exit code {}", ended.exit_code))
                .trim()
                .to_owned(),
        )
    })
}

/// A node, without what its pods tell.
pub(super) fn node(node: &Node, driver: DriverPod) -> NodeFacts {
    let annotation = |key: &str| node.annotations().get(key).cloned();
    let since = annotation(SINCE).and_then(|text| text.parse::<Timestamp>().ok());
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    NodeFacts {
        name: node.name_any(),
        state: node.labels().get(STATE).and_then(|text| State::parse(text)),
        since: since.map_or(0, Timestamp::as_second),
        reason: annotation(REASON).unwrap_or_default(),
        failed_revision: annotation(REVISION),
        is_selected: node.labels().get(Gate::Driver.label()).map(String::as_str) == Some("true"),
        is_skipped: node.labels().get(SKIP).map(String::as_str) == Some("true"),
        cordon: cordon(node),
        is_ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        driver,
        pods: None,
    }
}

/// Who wrote `spec.unschedulable` last. `kubectl cordon` writes it under its own name; writing what is there already changes
/// no owner.
fn cordon(node: &Node) -> Cordon {
    let spec = node.spec.as_ref();
    if !spec.and_then(|spec| spec.unschedulable).unwrap_or(false) {
        return Cordon::No;
    }
    let mut managers = node.managed_fields().iter().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields.pointer("/f:spec/f:unschedulable").is_some())
    });
    match managers.all(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
        && node.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
    {
        true => Cordon::Ours,
        false => Cordon::Foreign,
    }
}

/// Whether a pod can still hold something.
pub(super) fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a pod asks for an engine.
pub(super) fn holds_engines(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let steps = spec.init_containers.iter().flatten();
    let mut containers = spec.containers.iter().chain(steps);
    containers.any(|container| {
        let Some(resources) = &container.resources else { return false };
        let lists = [&resources.limits, &resources.requests];
        lists.into_iter().flatten().any(|list| list.keys().any(|name| name.starts_with(RESOURCES)))
    })
}

/// Whether a drain leaves a pod where it is: DaemonSets make theirs again at once, and the kubelet its own.
pub(super) fn stays_in_a_drain(pod: &Pod) -> bool {
    let of_daemon_set = pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
    of_daemon_set || pod.annotations().contains_key(MIRROR)
}

/// A pod that may have to go.
pub(super) fn pod(pod: &Pod) -> PodFacts {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    PodFacts {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        is_managed: pod.owner_references().iter().any(|owner| owner.controller == Some(true)),
        has_empty_dir: volumes.iter().any(|volume| volume.empty_dir.is_some()),
        is_leaving: pod.metadata.deletion_timestamp.is_some(),
    }
}
