//! Pod Security Admission: the operator's namespace lets privileged pods in.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::operator::cluster::{Cluster, Error, FIELD_MANAGER, ask};

/// <https://kubernetes.io/docs/concepts/security/pod-security-admission/>.
const MODES: [&str; 3] = ["enforce", "audit", "warn"];

/// Labels the namespace, or takes the labels away that the operator wrote.
pub(super) async fn keep(cluster: &Cluster, is_enabled: bool) -> Result<(), Error> {
    if !is_enabled {
        return unlabel(cluster).await;
    }
    let namespace = get(cluster).await?;
    let labels = namespace.metadata.labels.unwrap_or_default();
    let keys = MODES.map(|mode| format!("pod-security.kubernetes.io/{mode}"));
    if keys.iter().all(|key| labels.get(key).is_some_and(|level| level == "privileged")) {
        return Ok(());
    }
    if cluster.namespace == "default" {
        tracing::warn!(
            "the namespace `default` is opened for privileged pods; a namespace of its own is safer"
        );
    }
    let labels: serde_json::Map<String, Value> =
        keys.into_iter().map(|key| (key, json!("privileged"))).collect();
    write(cluster, json!(labels)).await
}

/// Takes the labels away that the operator wrote.
pub(super) async fn unlabel(cluster: &Cluster) -> Result<(), Error> {
    let namespace = match get(cluster).await {
        Err(error) if error.is_not_found() => return Ok(()),
        answer => answer?,
    };
    let managers = namespace.metadata.managed_fields.unwrap_or_default();
    if managers.iter().any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER)) {
        write(cluster, json!({})).await?;
    }
    Ok(())
}

async fn get(cluster: &Cluster) -> Result<k8s_openapi::api::core::v1::Namespace, Error> {
    let name = &cluster.namespace;
    ask("get", format!("namespace {name}"), cluster.namespaces().get(name)).await
}

async fn write(cluster: &Cluster, labels: Value) -> Result<(), Error> {
    let name = &cluster.namespace;
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let api = cluster.namespaces();
    ask("label", format!("namespace {name}"), api.patch(name, &parameters, &Patch::Apply(object))).await?;
    Ok(())
}
