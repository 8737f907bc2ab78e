//! The definition of KAEPolicy in a cluster.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::cluster::{self, FIELD_MANAGER, ask, delete};
use super::crd;

/// How long the API server may take to serve it.
const LONGEST: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_millis(100);

/// Why it is not served.
#[derive(Debug, Error)]
pub enum DefinitionError {
    /// The API server refused it.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// It has it, and does not serve it.
    #[error("the API server does not serve {0} after {time} s; `kubectl describe crd {0}` tells why", time = LONGEST.as_secs())]
    NotServed(String),
}

fn api(client: Client) -> Api<CustomResourceDefinition> {
    Api::all(client)
}

/// Makes the definition this program's, and waits until it is served.
///
/// # Errors
/// As [`DefinitionError`] says.
pub async fn apply(client: Client) -> Result<(), DefinitionError> {
    let api = api(client);
    let definition = crd::definition();
    let name = definition.name_any();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let what = || format!("CustomResourceDefinition {name}");
    ask("apply", what(), api.patch(&name, &parameters, &Patch::Apply(&definition))).await?;
    let served = timeout(LONGEST, async {
        loop {
            let definition = ask("get", what(), api.get(&name)).await?;
            let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions
                .iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
            {
                return Ok(());
            }
            sleep(PACE).await;
        }
    });
    served.await.unwrap_or_else(|_| Err(DefinitionError::NotServed(name.clone())))
}

/// Deletes the definition, and every policy by that.
///
/// # Errors
/// The API server refused.
pub async fn remove(client: Client) -> Result<(), cluster::Error> {
    delete(&api(client), "CustomResourceDefinition", &crd::definition().name_any()).await.map(drop)
}
