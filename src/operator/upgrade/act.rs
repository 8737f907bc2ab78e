//! Asks the API server what is so, and does what was decided.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::facts::{Cordon, NodeFacts, PodFacts, Pods, State};
use super::step::{Action, Decision, step};
use super::{REASON, REVISION, SINCE, STATE, view};
use crate::operator::cluster::{Cluster, Error, ask, delete, merge};
use crate::operator::crd::{NodeUpgrade, UpgradePolicy, UpgradeStatus};
use crate::operator::events::{Happening, Herald, node_reference};
use crate::operator::render::{DRIVER, NAME};

/// Nodes that are seen to at the same time.
const AT_ONCE: usize = 8;
/// How long the answer to an eviction is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Nodes that the status names.
const NAMED: usize = 64;

/// What a look has come to.
#[derive(Debug, Default)]
pub struct Upgrades {
    /// For the policy's status.
    pub status: UpgradeStatus,
    /// What could not be done; it is tried again.
    pub failures: Vec<String>,
}

impl Upgrades {
    /// Whether to look again before long.
    pub fn is_under_way(&self) -> bool {
        self.status.in_progress > 0 || self.status.pending > 0
    }
}

/// Looks at all nodes with a driver and takes each a step further. `driver` is the driver's DaemonSet.
///
/// # Errors
/// Where nodes, pods or revisions cannot be listed.
pub async fn pass(
    cluster: &Cluster,
    herald: &Herald,
    policy: &UpgradePolicy,
    driver: &DaemonSet,
) -> Result<Upgrades, Error> {
    let revisions: Api<ControllerRevision> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let of_driver = ListParams::default().labels(&format!("{NAME}={DRIVER}"));
    let revisions = ask("list", "ControllerRevisions", revisions.list(&of_driver)).await?;
    // A DaemonSet that its controller has not looked at yet.
    let Some(revision) = view::newest_revision(driver, &revisions.items) else {
        return Ok(Upgrades::default());
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let pods = ask("list", "pods of the driver", pods.list(&of_driver)).await?;
    let mut of_nodes: HashMap<String, Pod> = HashMap::new();
    for pod in pods {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { continue };
        // One that is on its way out may have its successor beside it.
        let is_better = pod.metadata.deletion_timestamp.is_none();
        if is_better || !of_nodes.contains_key(&node) {
            of_nodes.insert(node, pod);
        }
    }
    let nodes = list_nodes(cluster).await?;
    let mut known: Vec<(Node, NodeFacts)> = Vec::new();
    for node in nodes {
        let pod = of_nodes.get(&node.name_any());
        let driver = view::driver_pod(pod, &revision, pod.and_then(view::failure));
        let facts = view::node(&node, driver);
        if facts.is_selected || facts.state.is_some() || facts.cordon == Cordon::Ours {
            known.push((node, facts));
        }
    }
    for (_, facts) in known.iter_mut().filter(|(_, facts)| facts.needs_pods()) {
        facts.pods = Some(pods_of(cluster, policy, &facts.name).await?);
    }
    let (nodes, facts): (Vec<Node>, Vec<NodeFacts>) = known.into_iter().unzip();
    let decisions = step(policy, &revision, Timestamp::now().as_second(), &facts);
    let status = status(&decisions);
    let failures = stream::iter(nodes.into_iter().zip(facts).zip(decisions))
        .map(|((node, facts), decision)| async move {
            carry_out(cluster, herald, &node, &facts, &decision).await.err().map(|error| error.to_string())
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(|failure| async move { failure })
        .collect()
        .await;
    Ok(Upgrades { status, failures })
}

/// Gives all nodes back: makes those schedulable that the operator made unschedulable, and takes its labels away.
///
/// # Errors
/// What could not be listed or written; doing it again goes on.
pub async fn withdraw(cluster: &Cluster) -> Result<(), Error> {
    for node in list_nodes(cluster).await? {
        let facts = view::node(&node, view::driver_pod(None, "", None));
        if facts.state.is_some() || facts.cordon == Cordon::Ours {
            let mut change = written(None, &facts);
            if facts.cordon == Cordon::Ours {
                change["spec"] = json!({ "unschedulable": null });
            }
            patch(cluster, &node, change).await?;
        }
    }
    Ok(())
}

async fn list_nodes(cluster: &Cluster) -> Result<Vec<Node>, Error> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    Ok(ask("list", "nodes", nodes.list(&ListParams::default())).await?.items)
}

/// The pods of a node that are in the way.
async fn pods_of(cluster: &Cluster, policy: &UpgradePolicy, node: &str) -> Result<Pods, Error> {
    let api: Api<Pod> = Api::all(cluster.client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let list = async |selector: &str| {
        let parameters = here.clone().labels(selector);
        let parameters = if selector.is_empty() { here.clone() } else { parameters };
        ask("list", format!("pods of {node}"), api.list(&parameters)).await
    };
    let jobs = match policy.wait_for_completion.pod_selector.as_str() {
        "" => 0,
        selector => list(selector).await?.iter().filter(|pod| view::is_running(pod)).count(),
    };
    let all = list("").await?;
    let running = |pod: &&Pod| view::is_running(pod);
    let holders: Vec<PodFacts> =
        all.iter().filter(running).filter(|pod| view::holds_engines(pod)).map(view::pod).collect();
    let others = match policy.drain.enable {
        false => Vec::new(),
        true => {
            let chosen = match policy.drain.pod_selector.as_str() {
                "" => all,
                selector => list(selector).await?,
            };
            let may_go = |pod: &&Pod| !view::stays_in_a_drain(pod);
            chosen.iter().filter(running).filter(may_go).map(view::pod).collect()
        }
    };
    Ok(Pods { jobs, holders, others })
}

/// Writes the decision down, with the cordon in the same patch, then does what else there is to do.
async fn carry_out(
    cluster: &Cluster,
    herald: &Herald,
    node: &Node,
    facts: &NodeFacts,
    decision: &Decision,
) -> Result<(), Error> {
    let mut change = written(Some(decision), facts);
    for action in &decision.actions {
        match action {
            Action::Cordon => change["spec"] = json!({ "unschedulable": true }),
            Action::Uncordon => change["spec"] = json!({ "unschedulable": null }),
            Action::Evict(_) | Action::Restart(_) => {}
        }
    }
    if change != json!({}) && !patch(cluster, node, change).await? {
        // Somebody wrote meanwhile; what it says now is looked at next.
        return Ok(());
    }
    let about = node_reference(&decision.node, node.metadata.uid.as_deref());
    for &happening in &decision.happenings {
        let note = match happening {
            Happening::UpgradeStarted => "the driver is being upgraded".to_owned(),
            Happening::UpgradeFailed => decision.reason.clone(),
            _ => "the newest driver is ready".to_owned(),
        };
        herald.tell(&about, happening, note).await;
    }
    let mut evicted = Vec::new();
    for action in &decision.actions {
        match action {
            Action::Restart(pod) => {
                let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
                delete(&pods, "pod", pod).await?;
            }
            Action::Evict(pod) => evicted.push(pod.clone()),
            Action::Cordon | Action::Uncordon => {}
        }
    }
    evict(cluster, evicted).await
}

/// What differs from what is written; an empty object for nothing.
fn written(decision: Option<&Decision>, facts: &NodeFacts) -> Value {
    let state = decision.and_then(|decision| decision.state);
    let since = |seconds: i64| Timestamp::from_second(seconds).ok().map(|time| time.to_string());
    let before = (facts.state, facts.since, facts.reason.as_str(), facts.failed_revision.as_deref());
    let after = match decision.filter(|_| state.is_some()) {
        Some(it) => (state, it.since, it.reason.as_str(), it.failed_revision.as_deref()),
        None => (None, 0, "", None),
    };
    if before == after {
        return json!({});
    }
    let (_, seconds, reason, failed_revision) = after;
    json!({ "metadata": {
        "labels": { (STATE): state.map(State::as_str) },
        "annotations": {
            (SINCE): state.and_then(|_| since(seconds)),
            (REASON): Some(reason).filter(|reason| !reason.is_empty()),
            (REVISION): failed_revision,
        },
    }})
}

/// Patches a node as it was seen. Tells whether it was done.
async fn patch(cluster: &Cluster, node: &Node, mut change: Value) -> Result<bool, Error> {
    let name = node.name_any();
    if let Some(version) = &node.metadata.resource_version {
        change["metadata"]["resourceVersion"] = version.as_str().into();
    }
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    match ask("patch", format!("node {name}"), nodes.patch(&name, &merge(), &Patch::Merge(&change))).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() || error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Evicts pods. What their disruption budgets forbid now (status 429) is tried again at the next look.
///
/// The client would wait as long as the API server asks for (ten seconds with budgets), and all other nodes with it; so an
/// answer that is not there soon is not waited for.
async fn evict(cluster: &Cluster, pods: Vec<PodFacts>) -> Result<(), Error> {
    let evictions = stream::iter(pods).map(|pod| evict_soon(cluster.clone(), pod));
    let outcomes: Vec<Result<(), Error>> = evictions.buffer_unordered(AT_ONCE).collect().await;
    outcomes.into_iter().collect()
}

async fn evict_soon(cluster: Cluster, pod: PodFacts) -> Result<(), Error> {
    match timeout(PATIENCE, evict_one(&cluster, &pod)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::info!(
                pod = pod.shown(),
                "not evicted now: its disruption budget does not allow it, perhaps"
            );
            Ok(())
        }
    }
}

async fn evict_one(cluster: &Cluster, pod: &PodFacts) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &pod.namespace);
    let this_one = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
    let options = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
    let parameters = EvictParams { delete_options: Some(options), ..EvictParams::default() };
    match ask("evict", format!("pod {}", pod.shown()), api.evict(&pod.name, &parameters)).await {
        Err(error) if !matches!(error.code(), Some(404 | 409 | 429)) => Err(error),
        _ => Ok(()),
    }
}

fn status(decisions: &[Decision]) -> UpgradeStatus {
    let mut status = UpgradeStatus::default();
    for decision in decisions {
        let Some(state) = decision.state else { continue };
        let count = match state {
            State::UpgradeRequired => &mut status.pending,
            State::UpgradeDone => &mut status.done,
            State::UpgradeFailed => &mut status.failed,
            _ => &mut status.in_progress,
        };
        *count += 1;
        let is_told = state.is_in_progress() || state == State::UpgradeFailed;
        if is_told && status.nodes.len() < NAMED {
            status.nodes.push(NodeUpgrade {
                name: decision.node.clone(),
                state: state.as_str().to_owned(),
                since: Timestamp::from_second(decision.since)
                    .map(|time| time.to_string())
                    .unwrap_or_default(),
                reason: decision.reason.clone(),
            });
        }
    }
    status
}
