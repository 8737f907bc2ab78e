//! What scenarios do with the cluster.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use pcidp::operator::crd::{KaePolicy, SINGLETON};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::{LIMIT, NAMESPACE, World};

pub(crate) const DRIVER: &str = "kae-driver-installer";
pub(crate) const PLUGIN: &str = "kae-device-plugin";
pub(crate) const CLEANUP: &str = "kae-driver-cleanup";
pub(crate) const HPRE: &str = "openfuyao.com/kae.hpre.present";
pub(crate) const SEC: &str = "openfuyao.com/kae.sec.present";
pub(crate) const PRESENT: &str = "openfuyao.com/kae.present";
pub(crate) const DEPLOY_DRIVER: &str = "openfuyao.com/kae.deploy.driver";
pub(crate) const DEPLOY_PLUGIN: &str = "openfuyao.com/kae.deploy.device-plugin";
pub(crate) const FINALIZER: &str = "device.openfuyao.com/kaepolicy";

type Asked<T> = Result<T, kube::Error>;

/// Asks until the answer is there.
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(LIMIT, what, look)
}

pub(crate) fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(15));
    }
}

impl World {
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn policies(&self) -> Api<KaePolicy> {
        Api::all(self.client.clone())
    }

    /// Policies as they are written, defaults and all.
    pub(crate) fn raw_policies(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("device.openfuyao.com", "v1", "KAEPolicy");
        let resource = ApiResource::from_gvk_with_plural(&kind, "kaepolicies");
        Api::all_with(self.client.clone(), &resource)
    }

    pub(crate) fn rules(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureRule");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    pub(crate) fn here<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// A policy as a user writes it.
    pub(crate) fn try_policy(&self, name: &str, spec: &Value, is_dry: bool) -> Asked<DynamicObject> {
        let policy = json!({
            "apiVersion": "device.openfuyao.com/v1", "kind": "KAEPolicy", "metadata": {"name": name}, "spec": spec,
        });
        let parameters = PostParams { dry_run: is_dry, ..PostParams::default() };
        let policy: DynamicObject = serde_json::from_value(policy).unwrap();
        self.wait(self.raw_policies().create(&parameters, &policy))
    }

    pub(crate) fn create_policy(&self, spec: Value) {
        self.try_policy(SINGLETON, &spec, false).unwrap();
    }

    /// As `kubectl patch --type merge`.
    pub(crate) fn edit(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.wait(self.policies().patch(SINGLETON, &PatchParams::default(), &patch)).unwrap();
    }

    pub(crate) fn policy(&self) -> Option<KaePolicy> {
        self.wait(self.policies().get_opt(SINGLETON)).unwrap()
    }

    pub(crate) fn delete_policy(&self) {
        self.wait(self.policies().delete(SINGLETON, &DeleteParams::default())).unwrap();
    }

    pub(crate) fn set(&self, name: &str) -> Option<DaemonSet> {
        self.wait(self.here::<DaemonSet>().get_opt(name)).unwrap()
    }

    /// A DaemonSet's pod, as JSON.
    pub(crate) fn pod_of(&self, name: &str) -> Option<Value> {
        let set = serde_json::to_value(self.set(name)?).unwrap();
        Some(set["spec"]["template"].clone())
    }

    pub(crate) fn wait_for_sets(&self) {
        eventually("both DaemonSets are there", || {
            (self.set(DRIVER).is_some() && self.set(PLUGIN).is_some()).then_some(())
        });
    }

    /// What a DaemonSet's controller does: it looked, and so many pods are ready.
    pub(crate) fn run_set(&self, name: &str, desired: i32, ready: i32) {
        let api = self.here::<DaemonSet>();
        let Some(generation) = self.set(name).map(|set| set.metadata.generation) else { return };
        let status = json!({ "status": {
            "observedGeneration": generation, "desiredNumberScheduled": desired, "currentNumberScheduled": desired,
            "numberMisscheduled": 0, "numberReady": ready, "updatedNumberScheduled": desired,
            "numberUnavailable": desired - ready,
        }});
        match self.wait(api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))) {
            // It went meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.unwrap()),
        }
    }

    /// A pod, as the driver's DaemonSet makes one.
    pub(crate) fn create_driver_pod(&self, name: &str, node: &str) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": DRIVER}},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "hold", "image": "x"}],
                "initContainers": [{"name": "install", "image": "x"}],
            },
        }))
        .unwrap();
        self.wait(self.here::<Pod>().create(&PostParams::default(), &pod)).unwrap();
    }

    pub(crate) fn delete_pod(&self, name: &str) {
        let parameters = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.wait(self.here::<Pod>().delete(name, &parameters)).unwrap();
    }

    /// The removal of the driver succeeds on so many nodes, whenever the operator lets it.
    pub(crate) fn run_cleanup(&self, nodes: i32) {
        eventually("the removal of the driver is over", || match self.set(CLEANUP) {
            Some(_) => {
                self.run_set(CLEANUP, nodes, nodes);
                None
            }
            None => Some(()),
        });
    }

    pub(crate) fn create_nodes(&self, names: &[String], labels: &[(&str, &str)]) {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let api: Api<Node> = Api::all(self.client.clone());
        let create = stream::iter(names)
            .map(|name| {
                let node = json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                });
                let node: Node = serde_json::from_value(node).unwrap();
                let api = api.clone();
                async move { api.create(&PostParams::default(), &node).await }
            })
            .buffer_unordered(16)
            .collect::<Vec<_>>();
        for created in self.wait(create) {
            created.unwrap();
        }
    }

    pub(crate) fn create_node(&self, name: &str, labels: &[(&str, &str)]) {
        self.create_nodes(&[name.to_owned()], labels);
    }

    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.wait(Api::<Node>::all(self.client.clone()).list(&ListParams::default())).unwrap().items
    }

    pub(crate) fn delete_node(&self, name: &str) {
        let api: Api<Node> = Api::all(self.client.clone());
        self.wait(api.delete(name, &DeleteParams::default())).unwrap();
    }

    pub(crate) fn label(&self, node: &str, key: &str) -> Option<String> {
        let api: Api<Node> = Api::all(self.client.clone());
        self.wait(api.get(node)).unwrap().labels().get(key).cloned()
    }

    /// As `kubectl label --overwrite`; nothing removes it.
    pub(crate) fn set_label(&self, node: &str, key: &str, value: Option<&str>) {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        self.wait(api.patch(node, &PatchParams::default(), &patch)).unwrap();
    }

    pub(crate) fn wait_for_label(&self, node: &str, key: &str, value: Option<&str>) {
        eventually(&format!("{node} has {key}={value:?}"), || {
            (self.label(node, key).as_deref() == value).then_some(())
        });
    }

    /// Status, reason and message of a condition.
    pub(crate) fn condition(&self, kind: &str) -> Option<(String, String, String)> {
        let conditions = self.policy()?.status?.conditions;
        let found = conditions.into_iter().find(|condition| condition.type_ == kind)?;
        Some((found.status, found.reason, found.message))
    }

    pub(crate) fn wait_for_condition(&self, kind: &str, status: &str, reason: &str) -> String {
        let mut last = None;
        let started = Instant::now();
        loop {
            last = self.condition(kind).or(last);
            if let Some((_, _, message)) =
                last.clone().filter(|(is, why, _)| is.as_str() == status && why.as_str() == reason)
            {
                return message;
            }
            assert!(started.elapsed() < LIMIT, "{kind} is {last:?}, not {status} because of {reason}");
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    /// Reasons and notes of events about an object.
    pub(crate) fn events(&self, about: &str) -> Vec<(String, String)> {
        let events: Api<Event> = Api::all(self.client.clone());
        let events = self.wait(events.list(&ListParams::default())).unwrap().items;
        let of = |event: Event| {
            let regarding = event.regarding.and_then(|regarding| regarding.name);
            (regarding.as_deref() == Some(about))
                .then(|| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
        };
        events.into_iter().filter_map(of).collect()
    }

    pub(crate) fn wait_for_event(&self, about: &str, reason: &str) -> String {
        eventually(&format!("an event {reason} of {about}"), || {
            self.events(about).into_iter().find(|(is, _)| is == reason).map(|(_, note)| note)
        })
    }

    /// The policy is gone, and everything that the operator made and wrote.
    pub(crate) fn wait_for_nothing(&self) {
        eventually("the policy is gone", || self.policy().is_none().then_some(()));
        let left = self.left();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        left.extend(self.names(&self.here::<DaemonSet>()));
        left.extend(self.names(&self.here::<ConfigMap>()));
        left.extend(self.names(&self.here::<ServiceAccount>()));
        left.extend(
            self.wait(self.rules().list(&ListParams::default()))
                .unwrap()
                .iter()
                .map(kube::ResourceExt::name_any),
        );
        for node in self.nodes() {
            let ours = |key: &&String| key.starts_with("openfuyao.com/") && !key.ends_with(".present");
            let labels = node
                .labels()
                .iter()
                .filter(|(key, value)| ours(key) && *value != "false")
                .map(|(key, _)| key);
            left.extend(
                labels
                    .chain(node.annotations().keys().filter(ours))
                    .map(|key| format!("{}: {key}", node.name_any())),
            );
            left.extend(node.labels().get(PRESENT).map(|_| format!("{}: {PRESENT}", node.name_any())));
        }
        let namespace = self.wait(Api::<Namespace>::all(self.client.clone()).get(NAMESPACE)).unwrap();
        left.extend(namespace.labels().keys().filter(|key| key.starts_with("pod-security")).cloned());
        left
    }

    fn names<K>(&self, api: &Api<K>) -> Vec<String>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let objects = self.wait(api.list(&ListParams::default())).unwrap();
        objects.into_iter().map(|object| object.name_any()).collect()
    }

    /// An empty cluster for the next scenario.
    pub(crate) fn clean(&self) {
        self.wait(async {
            let (list, delete) = (ListParams::default(), DeleteParams::default());
            let _ = self.policies().delete_collection(&delete, &list).await;
            for policy in self.policies().list(&list).await.unwrap() {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let _ = self.policies().patch(&policy.name_any(), &PatchParams::default(), &patch).await;
            }
            let _ = self.here::<DaemonSet>().delete_collection(&delete, &list).await;
            let _ = self.here::<ConfigMap>().delete_collection(&delete, &list).await;
            let _ = self.here::<ServiceAccount>().delete_collection(&delete, &list).await;
            let pods = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            let _ = self.here::<Pod>().delete_collection(&pods, &list).await;
            let _ = self.rules().delete_collection(&delete, &list).await;
            let _ = Api::<Node>::all(self.client.clone()).delete_collection(&delete, &list).await;
            let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
            let _ = events.delete_collection(&delete, &list).await;
            let leases: Api<k8s_openapi::api::coordination::v1::Lease> = self.here();
            let _ = leases.delete_collection(&delete, &list).await;
        });
    }
}
