//! What the operator makes in the cluster. Pure: a policy and a place in, objects out.
//!
//! Objects are applied from the server's side, so they hold exactly the fields that are ours.

mod config;
mod driver;
mod plugin;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::crd::{KaePolicySpec, Resources};
use super::engine::Engine;

pub use config::{CONFIG_KEY, ConfigError, config_map, config_text};
pub use driver::{cleanup, driver};
pub use plugin::plugin;
pub use rule::{RULE, node_feature_rule};

/// The driver's DaemonSet.
pub const DRIVER: &str = "kae-driver-installer";
/// The plugin's.
pub const PLUGIN: &str = "kae-device-plugin";
/// The one that removes the driver.
pub const CLEANUP: &str = "kae-driver-cleanup";
/// The plugin's config.
pub const CONFIG: &str = "kae-device-plugin-config";
/// What users closed, by node.
pub const MEMORY: &str = "kae-user-overrides";
/// Service accounts: names without rights and without tokens.
pub const SERVICE_ACCOUNTS: [&str; 2] = [DRIVER, PLUGIN];

/// The label that says that an object is the operator's.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kae-operator");
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "kae");
/// The label by which a DaemonSet knows its pods.
pub(super) const NAME: &str = "app.kubernetes.io/name";

/// Where on a node the driver's pod says that it is done.
pub const RUN_DIRECTORY: &str = "/run/openfuyao/kae";
/// Where a node's root is in the driver's pod.
const HOST: &str = "/host";

/// Where objects go, and whose they are.
#[derive(Debug, Clone)]
pub struct Place {
    /// The operator's own namespace.
    pub namespace: String,
    /// The operator's own image: of steps before the plugin starts.
    pub image: String,
    /// The policy; everything goes with it.
    pub owner: Option<OwnerReference>,
}

impl Place {
    fn metadata(&self, name: &str, is_namespaced: bool) -> Value {
        let mut metadata = json!({ "name": name, "labels": labels_of(name) });
        if is_namespaced {
            metadata["namespace"] = json!(self.namespace);
        }
        if let Some(owner) = &self.owner {
            metadata["ownerReferences"] = json!([owner]);
        }
        metadata
    }
}

fn labels_of(name: &str) -> Value {
    json!({ NAME: name, (PART_OF.0): PART_OF.1, (MANAGED_BY.0): MANAGED_BY.1 })
}

/// A service account: a name without rights. Its pods get no token.
pub fn service_account(place: &Place, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": place.metadata(name, true),
        "automountServiceAccountToken": false,
    })
}

/// What users closed, by node: nodes are made again, and lose their annotations by that.
pub fn memory(place: &Place, closed: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": place.metadata(MEMORY, true),
        "data": closed,
    })
}

/// A DaemonSet of pods that hold what `pod` says, and what the policy says of all pods.
fn daemon_set(place: &Place, policy: &KaePolicySpec, name: &str, strategy: Value, pod: Value) -> Value {
    let common = &policy.daemon_sets;
    let mut labels: Map<String, Value> =
        common.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    if let Value::Object(own) = labels_of(name) {
        labels.extend(own);
    }
    let mut metadata = json!({ "labels": labels });
    if !common.annotations.is_empty() {
        metadata["annotations"] = json!(common.annotations);
    }
    let mut spec = json!({
        "serviceAccountName": name,
        "automountServiceAccountToken": false,
        "tolerations": common.tolerations,
    });
    if !common.priority_class_name.is_empty() {
        spec["priorityClassName"] = json!(common.priority_class_name);
    }
    if !common.image_pull_secrets.is_empty() {
        spec["imagePullSecrets"] = json!(common.image_pull_secrets);
    }
    if let (Value::Object(spec), Value::Object(pod)) = (&mut spec, pod) {
        spec.extend(pod);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": place.metadata(name, true),
        "spec": {
            "selector": { "matchLabels": { NAME: name } },
            "updateStrategy": strategy,
            "template": { "metadata": metadata, "spec": spec },
        },
    })
}

/// `hpre,sec`: as the driver's programs read it.
fn types(engines: impl IntoIterator<Item = Engine>) -> String {
    engines.into_iter().map(Engine::as_str).collect::<Vec<_>>().join(",")
}

/// Amounts that a container asks for; none where none are written.
fn resources(resources: &Resources) -> Option<Value> {
    (*resources != Resources::default()).then(|| json!(resources))
}

/// A path on the node, below the root that the policy names.
fn on_host(policy: &KaePolicySpec, path: &str) -> String {
    format!("{}{path}", policy.host_paths.root_fs.trim_end_matches('/'))
}

/// A folder of the node as a volume.
fn host_path(name: &str, path: &str, kind: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path, "type": kind } })
}
