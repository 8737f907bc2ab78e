//! The labels of all nodes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::core::PartialObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;

use super::Context;
use crate::operator::cluster::{Cluster, Error, apply, ask, merge};
use crate::operator::crd::{KaePolicySpec, NodeCounts};
use crate::operator::engine::Engine;
use crate::operator::events::{Happening, node_reference};
use crate::operator::labels::{self, Closed, Decision, Wanted};
use crate::operator::render::{self, MEMORY, Place};

/// Nodes that are patched at the same time.
const AT_ONCE: usize = 16;
/// Nodes that are gone, and whose opt-out is remembered.
const LONGEST_MEMORY: usize = 1000;

/// What the operator remembers of nodes from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What users closed, as [`Closed`] is written; nothing before it was read.
    closed: Option<BTreeMap<String, String>>,
    /// Since when a node's engines are away.
    absent: HashMap<String, Instant>,
}

/// What a look at the nodes has found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) counts: NodeCounts,
    pub(super) is_discovered: bool,
    /// When there is something to be withdrawn.
    pub(super) again_in: Option<Duration>,
    pub(super) failures: Vec<String>,
}

/// Labels the nodes as the policy wants.
pub(super) async fn label(
    context: &Context,
    place: &Place,
    policy: &KaePolicySpec,
    is_cleaning_up: bool,
) -> Result<Seen, Error> {
    let wanted = Wanted::of(policy, is_cleaning_up);
    let mut memory = context.memory.lock().await;
    let before = match memory.closed.take() {
        Some(closed) => closed,
        None => read(context).await?,
    };
    let nodes = context.nodes.state();
    let (seen, decisions) = look(context, &nodes, &wanted, &before, &mut memory.absent);

    let names: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
    let gone = before.iter().filter(|(name, _)| !names.contains(*name)).take(LONGEST_MEMORY);
    let mut after: BTreeMap<String, String> = gone.map(|(name, text)| (name.clone(), text.clone())).collect();
    let closed = decisions.iter().filter(|(_, decision)| !decision.closed.is_empty());
    after.extend(closed.map(|(node, decision)| (node.name_any(), decision.closed.to_text())));
    if after != before {
        // Not kept where it could not be written: then it is read, and tried, again.
        apply(&context.cluster.config_maps(), &render::memory(place, &after)).await?;
    }
    memory.closed = Some(after);
    drop(memory);

    let failures = stream::iter(decisions)
        .map(|(node, decision)| async move { carry_out(context, &node, decision).await.err() })
        .buffer_unordered(AT_ONCE)
        .filter_map(|failure| async move { failure });
    let failures: Vec<Error> = failures.collect().await;
    Ok(Seen { failures: failures.iter().map(Error::to_string).collect(), ..seen })
}

async fn read(context: &Context) -> Result<BTreeMap<String, String>, Error> {
    let api = context.cluster.config_maps();
    let map = ask("get", format!("ConfigMap {MEMORY}"), api.get_opt(MEMORY)).await?;
    Ok(map.and_then(|map| map.data).unwrap_or_default())
}

pub(super) type Listed = Arc<PartialObjectMeta<Node>>;

fn look(
    context: &Context,
    nodes: &[Listed],
    wanted: &Wanted,
    closed: &BTreeMap<String, String>,
    absent: &mut HashMap<String, Instant>,
) -> (Seen, Vec<(Listed, Decision)>) {
    let now = Instant::now();
    let mut seen = Seen::default();
    let mut still_absent = HashMap::new();
    let mut decisions = Vec::with_capacity(nodes.len());
    for node in nodes {
        let name = node.name_any();
        let remembered = closed.get(&name).map(|text| Closed::parse(text));
        let mut view = labels::Node {
            labels: node.labels(),
            annotations: node.annotations(),
            remembered: remembered.as_ref(),
            absent_for: None,
        };
        seen.is_discovered |= view.is_discovered();
        let has_any = view.has_any(wanted);
        if !has_any {
            let since = absent.get(&name).copied().unwrap_or(now);
            view.absent_for = Some(now.saturating_duration_since(since));
            still_absent.insert(name, since);
        }
        let decision = labels::decide(view, wanted, context.options.absence_debounce);
        if decision.waits {
            let left = context.options.absence_debounce.saturating_sub(view.absent_for.unwrap_or_default());
            let least = Duration::from_millis(10);
            seen.again_in = Some(seen.again_in.map_or(left, |before| before.min(left)).max(least));
        }
        let counts = &mut seen.counts;
        let count = |number: &mut u32, holds: bool| *number += u32::from(holds);
        count(&mut counts.kae, has_any);
        count(&mut counts.hpre, view.has(Engine::Hpre));
        count(&mut counts.sec, view.has(Engine::Sec));
        count(&mut counts.zip, view.has(Engine::Zip));
        count(&mut counts.opted_out, has_any && !decision.closed.is_empty());
        decisions.push((Arc::clone(node), decision));
    }
    *absent = still_absent;
    (seen, decisions)
}

async fn carry_out(
    context: &Context,
    node: &PartialObjectMeta<Node>,
    decision: Decision,
) -> Result<(), Error> {
    let name = node.name_any();
    let Some(change) = decision.patch else { return Ok(()) };
    if !patch(&context.cluster, node, change).await? {
        tracing::debug!(node = name, "the node has changed meanwhile");
        context.again.notify_one();
        return Ok(());
    }
    let about = node_reference(&name, node.meta().uid.as_deref());
    let tell = async |what, note: &str| context.herald.tell(&about, what, note).await;
    if decision.comes {
        tell(Happening::DeviceOnline, "the node has engines that are managed").await;
    }
    if decision.goes {
        tell(Happening::DeviceOffline, "the node has lost its engines; its driver and plugin are withdrawn")
            .await;
    }
    if decision.honours {
        tell(Happening::OptOutHonoured, &format!("remembered: {}", decision.closed.to_text())).await;
    }
    Ok(())
}

/// Patches a node as it was seen: whoever wrote meanwhile wins, and is looked at next. Tells whether it was done.
async fn patch(cluster: &Cluster, node: &PartialObjectMeta<Node>, mut change: Value) -> Result<bool, Error> {
    let name = node.name_any();
    if let Some(version) = &node.meta().resource_version {
        change["metadata"]["resourceVersion"] = version.as_str().into();
    }
    let api = cluster.nodes();
    match ask("patch", format!("node {name}"), api.patch(&name, &merge(), &Patch::Merge(&change))).await {
        Ok(_) => Ok(true),
        // A node that is gone needs no labels.
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes what the operator wrote off all nodes. Tells whether nothing is left.
pub(super) async fn withdraw(cluster: &Cluster, nodes: &[Listed]) -> Result<bool, Error> {
    let changes = nodes.iter().filter_map(|node| {
        let change = labels::withdraw(node.labels(), node.annotations())?;
        Some((Arc::clone(node), change))
    });
    let changes: Vec<_> = changes.collect();
    let done: Vec<Result<bool, Error>> = stream::iter(changes)
        .map(|(node, change)| async move { patch(cluster, &node, change).await })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let done: Vec<bool> = done.into_iter().collect::<Result<_, _>>()?;
    Ok(done.into_iter().all(|done| done))
}
