//! The driver's pods: on which nodes the installer is done, and where it failed and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::runtime::reflector::Store;

/// The driver's pods, as they were last told.
pub(super) struct DriverPods {
    store: Store<Pod>,
    /// What was told; nothing before the first look, when all is old.
    told: Mutex<Option<BTreeMap<String, Installation>>>,
}

/// How a node's installer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Installation {
    /// At it.
    Pending,
    /// Done: the pod is ready.
    Installed,
    /// It failed, and what it said.
    Failed(String),
}

impl DriverPods {
    pub(super) fn new(store: Store<Pod>) -> Self {
        Self { store, told: Mutex::default() }
    }

    pub(super) async fn wait_until_ready(&self) -> bool {
        self.store.wait_until_ready().await.is_ok()
    }

    /// Whether a node has one, or is about to lose it.
    pub(super) fn are_there(&self) -> bool {
        !self.store.is_empty()
    }

    /// By node.
    pub(super) fn installations(&self) -> BTreeMap<String, Installation> {
        self.store.state().iter().filter_map(installation).collect()
    }

    /// What is done or failed now, and was not at the last look.
    pub(super) fn news(&self) -> Vec<(String, Installation)> {
        let now = self.installations();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.replace(now.clone());
        let is_first = before.is_none();
        let before = before.unwrap_or_default();
        let is_news = |(node, installation): &(String, Installation)| match installation {
            Installation::Pending => false,
            // A step that is tried again fails with the same words.
            Installation::Failed(_) => before.get(node) != Some(installation),
            Installation::Installed => !is_first && before.get(node) != Some(installation),
        };
        now.into_iter().filter(is_news).collect()
    }

    /// Nodes on which the installer failed, and what it said.
    pub(super) fn failed(&self) -> Vec<(String, String)> {
        let failed = |(node, installation)| match installation {
            Installation::Failed(why) => Some((node, why)),
            Installation::Pending | Installation::Installed => None,
        };
        self.installations().into_iter().filter_map(failed).collect()
    }
}

fn installation(pod: &Arc<Pod>) -> Option<(String, Installation)> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let node = pod.spec.as_ref()?.node_name.clone()?;
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return Some((node, Installation::Installed));
    }
    let steps = status.init_container_statuses.as_deref().unwrap_or_default();
    let failure = steps.iter().find_map(failure);
    Some((node, failure.map_or(Installation::Pending, Installation::Failed)))
}

/// The end of the step's log is its message (`terminationMessagePolicy`); while it waits to be tried again, the end of the last
/// try.
fn failure(step: &ContainerStatus) -> Option<String> {
    let states = [step.state.as_ref(), step.last_state.as_ref()];
    let ended = states.into_iter().flatten().find_map(|state| state.terminated.as_ref());
    match ended {
        Some(end) if end.exit_code != 0 => {
            let said = end.message.as_deref().unwrap_or_default().trim();
            let last = said.lines().rev().find(|line| !line.trim().is_empty());
            Some(last.map_or_else(|| format!("the installer ended with {}", end.exit_code), str::to_owned))
        }
        _ => None,
    }
}
