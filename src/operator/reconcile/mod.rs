//! The controller: whatever changes, one task looks at the policy and the cluster, and makes the cluster as the policy says.
//!
//! ```text
//! policies ──────────────┐
//! nodes (labels only) ───┤
//! DaemonSets, ConfigMaps ┼─▶ look again ─▶ pass ─▶ objects, labels, status
//! pods of the driver ────┤
//! the clock ─────────────┘
//! ```

mod nodes;
mod pass;
mod pods;
mod psa;
mod release;
mod status;
mod teardown;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Resource as _;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use thiserror::Error;
use tokio::sync::{Mutex, Notify, Semaphore, watch as channel};

use super::cluster::{self, Cluster};
use super::crd::KaePolicy;
use super::events::Herald;
use super::metrics::Metrics;
use super::render::Place;

pub use release::{DeleteError, delete_policy, release};
pub use teardown::FINALIZER;

/// What the operator is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its own namespace.
    pub namespace: String,
    /// Its own image.
    pub image: String,
    /// Its own name, unique among its replicas.
    pub instance: String,
    /// Keep the rule of Node Feature Discovery.
    pub node_feature_rule: bool,
    /// Act only while holding the lease that replicas share, of this duration.
    pub lease: Option<Duration>,
    /// Where health and metrics are served.
    pub http: Option<SocketAddr>,
    /// How long engines must be away.
    pub absence_debounce: Duration,
    /// How long the driver may take to be removed.
    pub cleanup_deadline: Duration,
}

/// What every pass uses.
pub(super) struct Context {
    cluster: Cluster,
    options: Options,
    herald: Herald,
    metrics: Metrics,
    nodes: Store<PartialObjectMeta<Node>>,
    daemon_sets: Store<DaemonSet>,
    config_maps: Store<PartialObjectMeta<ConfigMap>>,
    driver_pods: pods::DriverPods,
    memory: Mutex<nodes::Memory>,
    /// Look again, though nothing that is watched has changed.
    again: Arc<Notify>,
    /// Everything that is watched was listed once.
    listed: channel::Sender<bool>,
    /// Each pass has one; who has all of them knows that there is no pass.
    places: Semaphore,
}

impl Context {
    fn place(&self, policy: &KaePolicy) -> Place {
        let mut owner = policy.controller_owner_ref(&());
        if let Some(owner) = &mut owner {
            // It would ask for the right to change the policy's finalizers, for nothing: the policy has one of ours.
            owner.block_owner_deletion = None;
        }
        Place { namespace: self.cluster.namespace.clone(), image: self.options.image.clone(), owner }
    }

    fn has_daemon_set(&self, name: &str) -> bool {
        self.daemon_sets.find(|set| set.metadata.name.as_deref() == Some(name)).is_some()
    }

    fn has_config_map(&self, name: &str) -> bool {
        self.config_maps.find(|map| map.metadata.name.as_deref() == Some(name)).is_some()
    }

    fn uid_of(&self, node: &str) -> Option<String> {
        let node = self.nodes.find(|known| known.metadata.name.as_deref() == Some(node))?;
        node.metadata.uid.clone()
    }

    /// To be called once: a store wakes the last of those who wait for it, and nobody else. For the same reason nobody but the
    /// controller waits for that of policies.
    async fn wait_for_lists(&self) {
        let all = self.nodes.wait_until_ready().await.is_ok()
            && self.daemon_sets.wait_until_ready().await.is_ok()
            && self.config_maps.wait_until_ready().await.is_ok()
            && self.driver_pods.wait_until_ready().await;
        self.listed.send_replace(all);
        let one = ListParams::default().limit(1);
        while cluster::ask("list", "KAEPolicies", self.cluster.policies().list(&one)).await.is_err() {
            // The controller says why.
            tokio::time::sleep(watch::LONGEST).await;
        }
        // Without a policy there is nothing to do, and all is well.
        self.metrics.ready();
    }
}

/// Why a pass is not the last one for now.
#[derive(Debug, Error)]
pub(super) enum PassError {
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// Told in the status already.
    #[error("{0}")]
    Unfinished(String),
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// When something changes.
    Change,
    /// Before long: something is on its way.
    Soon,
    /// Then.
    In(Duration),
}

/// Even if nothing seems to change: what is not watched may have.
const RESYNC: Duration = Duration::from_secs(300);
/// Policies that are looked at at the same time: one, and some that are not followed.
const PLACES: u32 = 16;
const SOON: Duration = Duration::from_secs(5);
/// After a failure; doubled with each, up to [`LATEST`].
const AGAIN: Duration = Duration::from_millis(200);
const LATEST: Duration = Duration::from_secs(30);

/// Runs the controller until it is told to stop. What is under way is finished.
pub(super) async fn run(
    cluster: Cluster,
    options: Options,
    metrics: Metrics,
    stop: impl Future<Output = ()>,
) {
    let again = Arc::new(Notify::new());
    let (stores, changes) = watch::all(&cluster, Arc::clone(&again));
    let context = Arc::new(Context {
        herald: Herald::new(cluster.client.clone(), options.instance.clone()),
        nodes: stores.nodes,
        daemon_sets: stores.daemon_sets,
        config_maps: stores.config_maps,
        driver_pods: pods::DriverPods::new(stores.driver_pods),
        memory: Mutex::default(),
        cluster: cluster.clone(),
        options,
        metrics,
        again,
        listed: channel::Sender::new(false),
        places: Semaphore::new(PLACES as usize),
    });
    let controller = Controller::new(cluster.policies(), watcher::Config::default());
    let known = Arc::clone(&context);
    let ready = tokio::spawn(async move { known.wait_for_lists().await });
    let stopped = Arc::clone(&context);
    let work = controller
        .trigger_backoff(watch::Patience::default())
        .reconcile_all_on(changes)
        .run(reconcile, on_error, context)
        .for_each(|outcome| async move {
            match outcome {
                Ok(_) => {}
                Err(kube::runtime::controller::Error::ReconcilerFailed(error, policy)) => {
                    tracing::warn!(policy = policy.name, %error, "will be tried again");
                }
                // A policy that was deleted before its turn.
                Err(kube::runtime::controller::Error::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(%error, "cannot watch policies; will be tried again"),
            }
        });
    // The controller's own way to stop waits until everything was listed, which may never be.
    let end = async {
        stop.await;
        let _ = stopped.places.acquire_many(PLACES).await;
    };
    tokio::select! {
        () = work => {}
        () = end => {}
    }
    ready.abort();
}

async fn reconcile(policy: Arc<KaePolicy>, context: Arc<Context>) -> Result<Action, PassError> {
    let mut listed = context.listed.subscribe();
    if listed.wait_for(|listed| *listed).await.is_err() {
        return Ok(Action::requeue(SOON));
    }
    let Ok(_place) = context.places.acquire().await else { return Ok(Action::await_change()) };
    let outcome = pass::pass(&context, &policy).await;
    context.metrics.passed(outcome.is_ok());
    Ok(Action::requeue(match outcome? {
        Next::Change => RESYNC,
        Next::Soon => SOON,
        Next::In(wait) => wait.min(RESYNC),
    }))
}

fn on_error(_: Arc<KaePolicy>, error: &PassError, context: Arc<Context>) -> Action {
    match error {
        // What changed is on its way here.
        PassError::Cluster(error) if error.is_conflict() => Action::requeue(AGAIN),
        _ => Action::requeue(
            context
                .metrics
                .failures_in_a_row()
                .checked_sub(1)
                .map_or(AGAIN, |failures| AGAIN.saturating_mul(1 << failures.min(10)).min(LATEST)),
        ),
    }
}
