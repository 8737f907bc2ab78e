//! Events: what happened, for whoever looks at a policy or a node with `kubectl describe`.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::cluster::ask;

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// A node has a driver now.
    DriverInstalled,
    /// A node's installer failed.
    DriverInstallFailed,
    /// The driver could not be removed from all nodes in time.
    DriverCleanupIncomplete,
    /// A node lost its engines, and its operands are withdrawn.
    DeviceOffline,
    /// A node with engines gets operands.
    DeviceOnline,
    /// A component is not wanted any more.
    OperandRemoved,
    /// A user closed a gate of a node.
    OptOutHonoured,
    /// A second policy is not followed.
    DuplicatePolicy,
    /// A node's driver is being upgraded.
    UpgradeStarted,
    /// It is.
    UpgradeDone,
    /// It could not be.
    UpgradeFailed,
}

impl Happening {
    fn as_str(self) -> &'static str {
        match self {
            Self::DriverInstalled => "DriverInstalled",
            Self::DriverInstallFailed => "DriverInstallFailed",
            Self::DriverCleanupIncomplete => "DriverCleanupIncomplete",
            Self::DeviceOffline => "DeviceOffline",
            Self::DeviceOnline => "DeviceOnline",
            Self::OperandRemoved => "OperandRemoved",
            Self::OptOutHonoured => "OptOutHonoured",
            Self::DuplicatePolicy => "DuplicatePolicy",
            Self::UpgradeStarted => "UpgradeStarted",
            Self::UpgradeDone => "UpgradeDone",
            Self::UpgradeFailed => "UpgradeFailed",
        }
    }

    fn is_bad(self) -> bool {
        matches!(
            self,
            Self::DriverInstallFailed
                | Self::DriverCleanupIncomplete
                | Self::DeviceOffline
                | Self::DuplicatePolicy
                | Self::UpgradeFailed
        )
    }
}

/// The longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Tells what happens.
#[derive(Clone)]
pub struct Herald(Recorder);

impl Herald {
    /// `instance` is the operator's own pod.
    pub fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter { controller: "kae-operator".into(), instance: Some(instance) };
        Self(Recorder::new(client, reporter))
    }

    /// Tells. An event that is lost costs a line in the log, and nothing else.
    pub async fn tell(&self, about: &ObjectReference, what: Happening, note: impl Into<String>) {
        let mut note = note.into();
        shorten(&mut note, LONGEST_NOTE);
        let name = about.name.as_deref().unwrap_or_default();
        tracing::info!(event = what.as_str(), about = name, note, "event");
        let event = Event {
            type_: if what.is_bad() { EventType::Warning } else { EventType::Normal },
            reason: what.as_str().to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = ask("tell", format!("an event of {name}"), self.0.publish(&event, about)).await {
            tracing::warn!(%error, "an event is lost");
        }
    }
}

/// Cuts a text that is longer than so many bytes, and says so.
pub(super) fn shorten(text: &mut String, limit: usize) {
    const MARK: &str = "…";
    if text.len() > limit {
        let is_end = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=limit.saturating_sub(MARK.len())).rev().find(is_end).unwrap_or_default();
        text.truncate(end);
        text.push_str(MARK);
    }
}

/// A node, for an event.
pub fn node_reference(name: &str, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let mut text = "aé".repeat(10);
        shorten(&mut text, 30);
        assert_eq!(text, "aé".repeat(10));
        shorten(&mut text, 8);
        assert_eq!(text, "aéa…");
    }
}
