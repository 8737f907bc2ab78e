//! What the operator says of a policy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Types of conditions.
pub mod condition {
    /// All that the policy asks for is there.
    pub const READY: &str = "Ready";
    /// Something is on its way.
    pub const PROGRESSING: &str = "Progressing";
    /// Something failed.
    pub const DEGRADED: &str = "Degraded";
    /// Every node that should has a driver.
    pub const DRIVER_READY: &str = "DriverReady";
    /// Every node that should has a plugin.
    pub const DEVICE_PLUGIN_READY: &str = "DevicePluginReady";
    /// Node Feature Discovery has labelled nodes.
    pub const NFD_AVAILABLE: &str = "NFDAvailable";
}

/// Reasons of conditions.
pub mod reason {
    /// All is done.
    pub const RECONCILED: &str = "Reconciled";
    /// Pods are not ready everywhere.
    pub const OPERAND_NOT_READY: &str = "OperandNotReady";
    /// No node has an engine that is managed.
    pub const NO_KAE_NODES: &str = "NoKAENodes";
    /// No node has a label of Node Feature Discovery.
    pub const NFD_LABELS_MISSING: &str = "NFDLabelsMissing";
    /// Node Feature Discovery's labels are there.
    pub const NFD_LABELS_SEEN: &str = "NFDLabelsSeen";
    /// A node's installer failed.
    pub const DRIVER_INSTALL_FAILED: &str = "DriverInstallFailed";
    /// The API server refused something, or could not be asked.
    pub const RECONCILE_FAILED: &str = "ReconcileFailed";
    /// The policy's config of the plugin cannot be used.
    pub const INVALID_CONFIG: &str = "InvalidConfig";
    /// The policy asks for none of it.
    pub const DISABLED: &str = "Disabled";
    /// Another policy is followed.
    pub const DUPLICATE_POLICY: &str = "DuplicatePolicy";
    /// The policy is being deleted.
    pub const DELETING: &str = "Deleting";
}

/// What the operator says of a policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KaePolicyStatus {
    /// In one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The generation of the policy that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the components run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// In detail.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How many nodes have what.
    pub nodes: NodeCounts,
    /// How the components do.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub components: Vec<Component>,
    /// How upgrades of the driver do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeStatus>,
}

/// A policy's state in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// All that it asks for is there.
    Ready,
    /// Not yet.
    NotReady,
    /// Another policy is followed.
    Ignored,
    /// It asks for no engine.
    Disabled,
}

/// How many nodes have what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    /// An engine that is managed.
    pub kae: u32,
    /// HPRE engines.
    pub hpre: u32,
    /// SEC engines.
    pub sec: u32,
    /// ZIP engines.
    pub zip: u32,
    /// Of those with an engine that is managed: somebody opted it out of a component.
    pub opted_out: u32,
}

/// How a component does: the numbers of its DaemonSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Component {
    /// Its DaemonSet.
    pub name: String,
    /// Nodes that should run it.
    pub desired: i32,
    /// Nodes that run its newest form.
    pub updated: i32,
    /// Nodes on which it is ready.
    pub ready: i32,
    /// Nodes on which it is not.
    pub unavailable: i32,
    /// What it runs.
    pub image: String,
    /// What there is to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How upgrades of the driver do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpgradeStatus {
    /// Nodes that are at it.
    pub in_progress: u32,
    /// Nodes that have the newest driver.
    pub done: u32,
    /// Nodes on which it failed.
    pub failed: u32,
    /// Nodes that wait for their turn.
    pub pending: u32,
    /// Nodes that are at it, or failed; some of them where there are many.
    #[schemars(length(max = 64))]
    pub nodes: Vec<NodeUpgrade>,
}

/// A node's upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUpgrade {
    /// The node.
    pub name: String,
    /// Its state, as its label `openfuyao.com/kae-driver-upgrade-state` says.
    pub state: String,
    /// Since when it has that state, in RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
    /// Why it is there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
