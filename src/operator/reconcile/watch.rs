//! What is watched, and which changes are worth a look.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, Store, store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::operator::cluster::Cluster;
use crate::operator::labels::{is_of_interest, is_of_nfd};
use crate::operator::render::{DRIVER, MANAGED_BY, NAME};

/// What is known of the cluster.
pub(super) struct Stores {
    pub(super) nodes: Store<PartialObjectMeta<Node>>,
    pub(super) daemon_sets: Store<DaemonSet>,
    pub(super) config_maps: Store<PartialObjectMeta<ConfigMap>>,
    pub(super) driver_pods: Store<Pod>,
}

/// How long is waited after a watch has failed: from a fifth of a second, doubled each time, up to five seconds.
#[derive(Debug, Default)]
pub(super) struct Patience(u32);

const FIRST: Duration = Duration::from_millis(200);
pub(super) const LONGEST: Duration = Duration::from_secs(5);

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = FIRST.saturating_mul(1 << self.0.min(10)).min(LONGEST);
        self.0 = self.0.saturating_add(1);
        Some(wait)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

/// Watches. Each item of the stream means: look again.
pub(super) fn all(cluster: &Cluster, again: Arc<Notify>) -> (Stores, BoxStream<'static, ()>) {
    let (nodes, node_changes) = nodes(cluster);
    let ours = watcher::Config::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let (daemon_sets, set_changes) = objects(cluster.daemon_sets(), ours.clone());
    let config_maps_of = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let (config_maps, map_changes) = objects(config_maps_of, ours);
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), &cluster.namespace);
    let drivers = watcher::Config::default().labels(&format!("{NAME}={DRIVER}"));
    let (driver_pods, pod_changes) = objects(pods, drivers);
    let asked = stream::unfold(again, |again| async move {
        again.notified().await;
        Some(((), again))
    });
    let changes =
        stream::select_all([node_changes, set_changes, map_changes, pod_changes, asked.boxed()]).boxed();
    (Stores { nodes, daemon_sets, config_maps, driver_pods }, changes)
}

/// Every change counts.
fn objects<K>(api: Api<K>, config: watcher::Config) -> (Store<K>, BoxStream<'static, ()>)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = store();
    let changes = watched(watcher(api, config), writer).filter_map(|event| async move {
        matches!(event, Event::Apply(_) | Event::Delete(_) | Event::InitDone).then_some(())
    });
    (reader, changes.boxed())
}

/// Of nodes, most changes are their kubelets'.
fn nodes(cluster: &Cluster) -> (Store<PartialObjectMeta<Node>>, BoxStream<'static, ()>) {
    let (reader, writer) = store();
    let slim = watcher(cluster.nodes(), watcher::Config::default()).modify(slim);
    let mut known = HashMap::new();
    let changes = watched(slim, writer).filter_map(move |event| {
        let is_news = match event {
            Event::Apply(node) => {
                let now = digest(&node);
                known.insert(node.name_any(), now) != Some(now)
            }
            Event::Delete(node) => known.remove(&node.name_any()).is_some(),
            // A list that begins anew is told of once, at its end.
            Event::Init => {
                known.clear();
                false
            }
            Event::InitApply(node) => {
                known.insert(node.name_any(), digest(&node));
                false
            }
            Event::InitDone => true,
        };
        async move { is_news.then_some(()) }
    });
    (reader, changes.boxed())
}

/// Keeps what is looked at.
fn slim(node: &mut PartialObjectMeta<Node>) {
    node.metadata.managed_fields = None;
    let is_kept = |key: &String| is_of_interest(key) || is_of_nfd(key);
    node.labels_mut().retain(|key, _| is_kept(key));
    // One label tells as well as a hundred that Node Feature Discovery was there.
    let mut more = node.labels().keys().filter(|key| is_of_nfd(key)).skip(1).cloned().collect::<Vec<_>>();
    more.drain(..).for_each(|key| drop(node.labels_mut().remove(&key)));
    node.annotations_mut().retain(|key, _| is_of_interest(key));
}

fn digest(node: &PartialObjectMeta<Node>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (node.uid(), node.labels(), node.annotations()).hash(&mut hasher);
    hasher.finish()
}

/// A watch that is kept up, and fills a store. It fails only for a while.
fn watched<K>(
    events: impl stream::Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    writer: reflector::store::Writer<K>,
) -> BoxStream<'static, Event<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let kind = K::kind(&()).into_owned();
    events
        .backoff(Patience::default())
        .reflect(writer)
        .filter_map(move |event| {
            let event =
                event.inspect_err(|error| tracing::warn!(kind, %error, "the watch ended; it is begun again"));
            async move { event.ok() }
        })
        .boxed()
}
