//! The API server, as the operator uses it: one field manager, one time limit, errors that name what was asked.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use tokio::time::timeout;

use super::crd::KaePolicy;

/// The name under which the operator owns fields.
pub const FIELD_MANAGER: &str = "kae-operator";

/// How long a question to the API server may take. A connection that is dead is noticed by this.
const LONGEST: Duration = Duration::from_secs(20);

/// Why something could not be had of the API server.
#[derive(Debug, Error)]
pub enum Error {
    /// It refused, or could not be reached.
    #[error("cannot {verb} {what}: {}", told(source))]
    Refused {
        /// What was to be done.
        verb: &'static str,
        /// With what.
        what: String,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// It did not answer.
    #[error("cannot {verb} {what}: no answer of the API server within {} s", LONGEST.as_secs())]
    Silent {
        /// What was to be done.
        verb: &'static str,
        /// With what.
        what: String,
    },
}

impl Error {
    /// The HTTP status, where there is an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Silent { .. } => None,
        }
    }

    /// The object changed meanwhile; the next look will see how.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// It is not there, or nothing of its kind can be.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }
}

/// What the API server said, without the structure around it.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => {
            let mut text = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(error) = cause {
                let more = error.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                cause = error.source();
            }
            text
        }
    }
}

/// Asks, with the time limit.
///
/// # Errors
/// As [`enum@Error`] says.
pub async fn ask<T>(
    verb: &'static str,
    what: impl Into<String>,
    question: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match timeout(LONGEST, question).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Error::Refused { verb, what: what.into(), source: Box::new(error) }),
        Err(_) => Err(Error::Silent { verb, what: what.into() }),
    }
}

/// The API server and the operator's namespace there.
#[derive(Clone)]
pub struct Cluster {
    /// The connection.
    pub client: Client,
    /// The operator's own namespace. All namespaced objects are in it.
    pub namespace: String,
}

impl Cluster {
    /// Policies.
    pub fn policies(&self) -> Api<KaePolicy> {
        Api::all(self.client.clone())
    }

    /// Nodes, without what their kubelets tell.
    pub fn nodes(&self) -> Api<PartialObjectMeta<Node>> {
        Api::all(self.client.clone())
    }

    /// Namespaces.
    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// DaemonSets of the operator's namespace.
    pub fn daemon_sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// ConfigMaps of the operator's namespace.
    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Service accounts of the operator's namespace.
    pub fn service_accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The rules of Node Feature Discovery.
    pub fn node_feature_rules(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureRule");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }
}

/// Makes the fields of an object ours and as they stand here. Others' fields stay.
///
/// # Errors
/// As [`enum@Error`] says.
pub async fn apply<K>(api: &Api<K>, object: &Value) -> Result<K, Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("{} {name}", object["kind"].as_str().unwrap_or_default());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    ask("apply", what, api.patch(name, &parameters, &Patch::Apply(object))).await
}

/// Deletes an object; its pods follow. Tells whether it was there.
///
/// # Errors
/// As [`enum@Error`] says.
pub async fn delete<K>(api: &Api<K>, kind: &str, name: &str) -> Result<bool, Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    match ask("delete", format!("{kind} {name}"), api.delete(name, &DeleteParams::background())).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// For merge patches of objects that are not the operator's.
pub fn merge() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
