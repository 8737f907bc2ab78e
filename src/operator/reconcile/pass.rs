//! One look at a policy and the cluster, and what follows from it. A step that fails does not stop the others.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::pods::Installation;
use super::status::{Findings, ignored, judge};
use super::teardown::{Cleanup, FINALIZER, clean_up, tear_down};
use super::{Context, Next, PassError, SOON, nodes, psa};
use crate::operator::cluster::{Error, FIELD_MANAGER, apply, ask, delete, merge};
use crate::operator::crd::{KaePolicy, KaePolicyStatus, SINGLETON, State};
use crate::operator::events::{Happening, node_reference};
use crate::operator::render::{self, CLEANUP, CONFIG, DRIVER, PLUGIN, Place, SERVICE_ACCOUNTS};
use crate::operator::upgrade;

/// Looks, and acts.
pub(super) async fn pass(context: &Context, policy: &KaePolicy) -> Result<Next, PassError> {
    if policy.name_any() != SINGLETON {
        return ignore(context, policy).await;
    }
    let place = context.place(policy);
    if policy.metadata.deletion_timestamp.is_some() {
        if !policy.finalizers().iter().any(|name| name == FINALIZER) {
            return Ok(Next::Change);
        }
        let Some((cleanup, left)) = tear_down(context, &place, policy).await? else {
            return Ok(Next::Change);
        };
        let findings = Findings { cleanup: Some(cleanup), is_deleting: true, ..Findings::default() };
        tell(context, policy, judge(policy, &place.namespace, findings, Timestamp::now())).await?;
        return Ok(Next::In(left));
    }
    hold(context, policy).await?;
    let (findings, next) = follow(context, &place, policy).await;
    let failures = findings.failures.clone();
    let status = judge(policy, &place.namespace, findings, Timestamp::now());
    context.metrics.judged(&status);
    let is_ready = status.state != Some(State::NotReady);
    tell(context, policy, status).await?;
    if let Some(first) = failures.into_iter().next() {
        return Err(PassError::Unfinished(first));
    }
    Ok(match next {
        Some(wait) => Next::In(wait),
        None if is_ready => Next::Change,
        None => Next::Soon,
    })
}

async fn ignore(context: &Context, policy: &KaePolicy) -> Result<Next, PassError> {
    // Of a time when it was followed, perhaps; nothing here is because of it.
    if policy.metadata.deletion_timestamp.is_none() {
        let was_ignored = policy.status.as_ref().is_some_and(|status| status.state == Some(State::Ignored));
        tell(context, policy, ignored(policy, SINGLETON, Timestamp::now())).await?;
        if !was_ignored {
            let note = format!("only the policy named {SINGLETON} is followed; delete this one");
            context.herald.tell(&policy.object_ref(&()), Happening::DuplicatePolicy, note).await;
        }
    }
    Ok(Next::Change)
}

/// Before anything is made, the policy is held until all of it is gone again.
async fn hold(context: &Context, policy: &KaePolicy) -> Result<(), Error> {
    if policy.finalizers().iter().any(|name| name == FINALIZER) {
        return Ok(());
    }
    let mut finalizers = policy.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    let change = json!({
        "metadata": { "finalizers": finalizers, "resourceVersion": policy.metadata.resource_version },
    });
    let api = context.cluster.policies();
    let name = policy.name_any();
    ask("hold", format!("KAEPolicy {name}"), api.patch(&name, &merge(), &Patch::Merge(change))).await?;
    Ok(())
}

/// The steps.
async fn follow(context: &Context, place: &Place, policy: &KaePolicy) -> (Findings, Option<Duration>) {
    let mut found = Findings::default();
    let spec = &policy.spec;
    let mut failures = Vec::new();
    let mut note = |error: PassError| failures.push(error.to_string());

    psa::keep(&context.cluster, spec.psa.enabled).await.unwrap_or_else(|error| note(error.into()));
    if context.options.node_feature_rule {
        match apply(&context.cluster.node_feature_rules(), &render::node_feature_rule(place)).await {
            Ok(_) => {}
            // Its definition comes with Node Feature Discovery; the condition tells.
            Err(error) if error.is_not_found() => tracing::debug!(%error, "no NodeFeatureRules here yet"),
            Err(error) => note(error.into()),
        }
    }
    let is_cleaning_up = is_cleaning_up(context, policy);
    let mut again = None;
    match nodes::label(context, place, spec, is_cleaning_up).await {
        Ok(seen) => {
            found.nodes = seen.counts;
            found.is_discovered = seen.is_discovered;
            again = seen.again_in;
            found.failures.extend(seen.failures);
        }
        Err(error) => note(error.into()),
    }
    let is_disabled = spec.operator.enabled().next().is_none();
    if !is_disabled || is_cleaning_up {
        for name in SERVICE_ACCOUNTS {
            let object = render::service_account(place, name);
            apply(&context.cluster.service_accounts(), &object)
                .await
                .map(drop)
                .unwrap_or_else(|error| note(error.into()));
        }
    }
    let sets = context.cluster.daemon_sets();
    if spec.driver.enabled && !is_disabled {
        remove(context, policy, CLEANUP, false).await.unwrap_or_else(|error| note(error.into()));
        match apply(&sets, &render::driver(place, spec)).await {
            Ok(set) => {
                again = sooner(again, upgrade_drivers(context, policy, &set, &mut found).await);
                found.driver = Some(set);
            }
            Err(error) => note(error.into()),
        }
        found.failed_drivers = context.driver_pods.failed();
        tell_of_drivers(context).await;
    } else if is_cleaning_up {
        give_back_nodes(context).await.unwrap_or_else(|error| note(error.into()));
        match clean_up(context, place, policy).await {
            Ok(Cleanup::Over) => {
                let about = policy.object_ref(&());
                context.herald.tell(&about, Happening::OperandRemoved, format!("{DRIVER} is removed")).await;
            }
            Ok(Cleanup::Running(set, left)) => {
                found.cleanup = Some(*set);
                again = Some(again.map_or(left, |before| before.min(left)));
            }
            Err(error) => note(error.into()),
        }
    } else {
        give_back_nodes(context).await.unwrap_or_else(|error| note(error.into()));
        for name in [DRIVER, CLEANUP] {
            remove(context, policy, name, name == DRIVER).await.unwrap_or_else(|error| note(error.into()));
        }
    }
    if spec.device_plugin.enabled && !is_disabled {
        let config = match (&spec.device_plugin.config_map_ref, render::config_text(spec)) {
            (Some(_), _) => remove_config(context).await.map(|()| true),
            (None, Ok(text)) => {
                let object = render::config_map(place, &text);
                apply(&context.cluster.config_maps(), &object).await.map(|_| true)
            }
            (None, Err(error)) => {
                found.config_error = Some(error.to_string());
                Ok(false)
            }
        };
        // What runs with the last good config runs on.
        config.map(drop).unwrap_or_else(|error| note(error.into()));
        match apply(&sets, &render::plugin(place, spec)).await {
            Ok(set) => found.plugin = Some(set),
            Err(error) => note(error.into()),
        }
    } else {
        remove(context, policy, PLUGIN, true).await.unwrap_or_else(|error| note(error.into()));
        remove_config(context).await.unwrap_or_else(|error| note(error.into()));
    }
    found.failures.extend(failures);
    (found, again)
}

/// Takes upgrades of drivers a step further, where there are any. Gives when to look again.
async fn upgrade_drivers(
    context: &Context,
    policy: &KaePolicy,
    driver: &DaemonSet,
    found: &mut Findings,
) -> Option<Duration> {
    let upgrades = &policy.spec.driver.upgrade_policy;
    if !upgrades.auto_upgrade && !has_upgrades(context) {
        return None;
    }
    match upgrade::pass(&context.cluster, &context.herald, upgrades, driver).await {
        Ok(done) => {
            let again = done.is_under_way().then_some(SOON);
            found.failures.extend(done.failures);
            found.upgrade = Some(done.status);
            again
        }
        Err(error) => {
            found.failures.push(error.to_string());
            None
        }
    }
}

/// Whether a node has a state of an upgrade.
fn has_upgrades(context: &Context) -> bool {
    context.nodes.find(|node| node.labels().contains_key(upgrade::STATE)).is_some()
}

/// Nodes that were taken out of service for an upgrade go into service again.
pub(super) async fn give_back_nodes(context: &Context) -> Result<(), Error> {
    match has_upgrades(context) {
        true => upgrade::withdraw(&context.cluster).await,
        false => Ok(()),
    }
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// What changed at the nodes' installers since the last look.
async fn tell_of_drivers(context: &Context) {
    for (node, installation) in context.driver_pods.news() {
        let about = node_reference(&node, context.uid_of(&node).as_deref());
        match installation {
            Installation::Installed => {
                context
                    .herald
                    .tell(&about, Happening::DriverInstalled, "the driver of the engines is ready")
                    .await;
            }
            Installation::Failed(why) => {
                context.herald.tell(&about, Happening::DriverInstallFailed, why).await;
            }
            Installation::Pending => {}
        }
    }
}

/// The driver is, or is to be, removed from the nodes, though the policy stays.
fn is_cleaning_up(context: &Context, policy: &KaePolicy) -> bool {
    let driver = &policy.spec.driver;
    let is_there = |name| context.has_daemon_set(name);
    !driver.enabled && (is_there(CLEANUP) || driver.enabled_cleanup && is_there(DRIVER))
}

/// Deletes a component's DaemonSet where it is there.
async fn remove(context: &Context, policy: &KaePolicy, name: &str, is_told: bool) -> Result<(), Error> {
    if !context.has_daemon_set(name) {
        return Ok(());
    }
    if delete(&context.cluster.daemon_sets(), "DaemonSet", name).await? && is_told {
        let about = policy.object_ref(&());
        context
            .herald
            .tell(&about, Happening::OperandRemoved, format!("{name} is not wanted any more"))
            .await;
    }
    Ok(())
}

async fn remove_config(context: &Context) -> Result<(), Error> {
    if context.has_config_map(CONFIG) {
        delete(&context.cluster.config_maps(), "ConfigMap", CONFIG).await?;
    }
    Ok(())
}

/// Writes the status, where it is another one.
async fn tell(context: &Context, policy: &KaePolicy, status: KaePolicyStatus) -> Result<(), Error> {
    if policy.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let name = policy.name_any();
    let object: Value = json!({
        "apiVersion": KaePolicy::api_version(&()),
        "kind": KaePolicy::kind(&()),
        "metadata": { "name": name },
        "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let api = context.cluster.policies();
    let patch = Patch::Apply(object);
    let patched = api.patch_status(&name, &parameters, &patch);
    ask("write the status of", format!("KAEPolicy {name}"), patched).await?;
    Ok(())
}
