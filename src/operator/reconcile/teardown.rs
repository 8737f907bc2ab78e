//! The way out.
//!
//! ```text
//! plugin ─▶ driver (cleaned up where asked, for a limited time) ─▶ labels of nodes ─▶ rule, config, accounts ─▶ finalizer
//! ```
//!
//! Every step may be repeated: an operator that is killed on the way goes on where it was.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::ResourceExt as _;
use kube::api::Patch;
use serde_json::json;

use super::pass::give_back_nodes;
use super::{Context, PassError, nodes, psa};
use crate::operator::cluster::{Cluster, Error, apply, ask, delete, merge};
use crate::operator::crd::KaePolicy;
use crate::operator::events::Happening;
use crate::operator::render::{self, CLEANUP, CONFIG, DRIVER, MEMORY, PLUGIN, Place, RULE, SERVICE_ACCOUNTS};

/// What keeps a policy until its traces are gone.
pub const FINALIZER: &str = "device.openfuyao.com/kaepolicy";

/// How far the removal of the driver is.
#[derive(Debug)]
pub(super) enum Cleanup {
    /// Nothing to be done, or it is done.
    Over,
    /// Under way, and how long it may still take.
    Running(Box<DaemonSet>, Duration),
}

/// Removes everything that is here because of the policy. Gives what is still on its way.
pub(super) async fn tear_down(
    context: &Context,
    place: &Place,
    policy: &KaePolicy,
) -> Result<Option<(DaemonSet, Duration)>, PassError> {
    give_back_nodes(context).await?;
    let sets = context.cluster.daemon_sets();
    delete(&sets, "DaemonSet", PLUGIN).await?;
    if policy.spec.driver.enabled_cleanup {
        if let Cleanup::Running(set, left) = clean_up(context, place, policy).await? {
            return Ok(Some((*set, left)));
        }
    } else {
        delete(&sets, "DaemonSet", DRIVER).await?;
        delete(&sets, "DaemonSet", CLEANUP).await?;
    }
    let is_bare = nodes::withdraw(&context.cluster, &context.nodes.state()).await?;
    *context.memory.lock().await = nodes::Memory::default();
    if !is_bare {
        return Err(PassError::Unfinished("a node changed while its labels were taken away".to_owned()));
    }
    remove_rest(&context.cluster, context.options.node_feature_rule).await?;
    release(&context.cluster, policy).await?;
    Ok(None)
}

/// Lets the policy go.
pub(super) async fn release(cluster: &Cluster, policy: &KaePolicy) -> Result<(), Error> {
    let finalizers: Vec<&String> = policy.finalizers().iter().filter(|name| *name != FINALIZER).collect();
    let change = Patch::Merge(json!({
        "metadata": { "finalizers": finalizers, "resourceVersion": policy.metadata.resource_version },
    }));
    let name = policy.name_any();
    match ask("release", format!("KAEPolicy {name}"), cluster.policies().patch(&name, &merge(), &change))
        .await
    {
        Ok(_) => tracing::info!(policy = name, "released: nothing is left of it"),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Removes all objects but DaemonSets.
pub(super) async fn remove_rest(cluster: &Cluster, with_rule: bool) -> Result<(), Error> {
    if with_rule {
        delete(&cluster.node_feature_rules(), "NodeFeatureRule", RULE).await?;
    }
    for name in [CONFIG, MEMORY] {
        delete(&cluster.config_maps(), "ConfigMap", name).await?;
    }
    for name in SERVICE_ACCOUNTS {
        delete(&cluster.service_accounts(), "ServiceAccount", name).await?;
    }
    psa::unlabel(cluster).await
}

/// Removes the driver from the nodes: a DaemonSet takes the place of the driver's, until it is ready everywhere or the time is
/// over.
///
/// The new one is made before the old one goes, so that nothing is forgotten between the two; it waits, on no node, until the
/// old one's pods have gone. An operator that comes later sees by them how far this is.
pub(super) async fn clean_up(context: &Context, place: &Place, policy: &KaePolicy) -> Result<Cleanup, Error> {
    let sets = context.cluster.daemon_sets();
    let get = async |name| ask("get", format!("DaemonSet {name}"), sets.get_opt(name)).await;
    if get(DRIVER).await?.is_some() {
        apply(&sets, &render::cleanup(place, &policy.spec, true)).await?;
        delete(&sets, "DaemonSet", DRIVER).await?;
    }
    let Some(mut set) = get(CLEANUP).await? else { return Ok(Cleanup::Over) };
    let is_held = context.driver_pods.are_there();
    if !is_held {
        set = apply(&sets, &render::cleanup(place, &policy.spec, false)).await?;
    }
    let status = set.status.clone().unwrap_or_default();
    let is_done = !is_held
        && status.observed_generation >= set.metadata.generation
        && status.number_ready >= status.desired_number_scheduled;
    let deadline = context.options.cleanup_deadline;
    let made = set.metadata.creation_timestamp.as_ref();
    let age = made.and_then(|made| Duration::try_from(Timestamp::now().duration_since(made.0)).ok());
    let left = deadline.saturating_sub(age.unwrap_or_default());
    if !is_done && !left.is_zero() {
        return Ok(Cleanup::Running(Box::new(set), left));
    }
    if !is_done {
        let note = format!(
            "the driver was removed from {} of {} nodes within {} s; look at the pods of {CLEANUP} that failed, and remove it from the others by hand",
            status.number_ready,
            status.desired_number_scheduled,
            deadline.as_secs()
        );
        context.herald.tell(&policy.object_ref(&()), Happening::DriverCleanupIncomplete, note).await;
    }
    delete(&sets, "DaemonSet", CLEANUP).await?;
    Ok(Cleanup::Over)
}
