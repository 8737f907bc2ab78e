//! The end of a policy, from outside of the operator: by the hook of an uninstall, and by hand after one without hooks.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::nodes;
use super::teardown::{release as let_go, remove_rest};
use crate::operator::cluster::{Cluster, Error, ask, delete};
use crate::operator::crd::{KaePolicy, SINGLETON};
use crate::operator::render::{CLEANUP, DRIVER, PLUGIN};
use crate::operator::upgrade;

/// Between two looks.
const PACE: Duration = Duration::from_millis(250);

/// Why a policy is still there.
#[derive(Debug, Error)]
pub enum DeleteError {
    /// The API server refused something.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// The operator does not let it go.
    #[error(
        "KAEPolicy {SINGLETON} is still there after {0} s{1}; see whether the operator runs, or remove its traces with `kae-operator policy release`"
    )]
    Late(u64, String),
}

/// Deletes the policy, and waits until the operator has removed what belongs to it.
///
/// # Errors
/// As [`DeleteError`] says.
pub async fn delete_policy(cluster: &Cluster, limit: Duration) -> Result<(), DeleteError> {
    let api = cluster.policies();
    let what = || format!("KAEPolicy {SINGLETON}");
    match ask("delete", what(), api.delete(SINGLETON, &DeleteParams::default())).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let mut last = None;
    let gone = timeout(limit, async {
        loop {
            match ask("get", what(), api.get_opt(SINGLETON)).await {
                Ok(None) => return,
                Ok(Some(policy)) => last = Some(policy),
                Err(error) => tracing::warn!(%error, "will be asked again"),
            }
            sleep(PACE).await;
        }
    });
    let is_gone = gone.await.is_ok();
    match is_gone {
        true => Ok(()),
        false => Err(DeleteError::Late(limit.as_secs(), last.as_ref().map(why).unwrap_or_default())),
    }
}

fn why(policy: &KaePolicy) -> String {
    let conditions = policy.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let bad = conditions.iter().find(|condition| condition.type_ == "Ready" && !condition.message.is_empty());
    bad.map(|condition| format!(" ({})", condition.message)).unwrap_or_default()
}

/// Removes what the operator made and wrote, without the operator: objects, labels, finalizers. The driver stays on the nodes.
///
/// # Errors
/// The API server refused something. It may be called again.
pub async fn release(cluster: &Cluster) -> Result<(), Error> {
    let sets = cluster.daemon_sets();
    for name in [PLUGIN, DRIVER, CLEANUP] {
        delete(&sets, "DaemonSet", name).await?;
    }
    loop {
        upgrade::withdraw(cluster).await?;
        let nodes = ask("list", "nodes", cluster.nodes().list(&ListParams::default())).await?;
        let nodes: Vec<nodes::Listed> = nodes.items.into_iter().map(Arc::new).collect();
        if nodes::withdraw(cluster, &nodes).await? {
            break;
        }
    }
    remove_rest(cluster, true).await?;
    let policies = match ask("list", "KAEPolicies", cluster.policies().list(&ListParams::default())).await {
        // Without their definition there are none.
        Err(error) if error.is_not_found() => return Ok(()),
        answer => answer?,
    };
    for policy in &policies {
        let_go(cluster, policy).await?;
    }
    Ok(())
}
