//! How drivers are upgraded: the part of the policy that the upgrade controller follows.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// How nodes get a new version of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpgradePolicy {
    /// Upgrade node by node when the driver's pod changes. Without it, whoever deletes a node's pod of the driver upgrades it.
    pub auto_upgrade: bool,
    /// Most nodes at a time; 0 for no limit.
    #[schemars(range(min = 0, max = 5000))]
    pub max_parallel_upgrades: u32,
    /// Most nodes that may be unavailable at a time, those among them that are for other reasons. A number, or a percentage of
    /// the nodes with a driver.
    #[schemars(schema_with = "schema::unavailable")]
    pub max_unavailable: IntOrString,
    /// Jobs that are waited for first.
    pub wait_for_completion: WaitForCompletion,
    /// How pods that hold engines are removed.
    pub pod_deletion: PodDeletion,
    /// Whether and how all other pods are removed, too.
    pub drain: Drain,
}

impl Default for UpgradePolicy {
    fn default() -> Self {
        Self {
            auto_upgrade: false,
            max_parallel_upgrades: 1,
            max_unavailable: IntOrString::String("25%".to_owned()),
            wait_for_completion: WaitForCompletion::default(),
            pod_deletion: PodDeletion::default(),
            drain: Drain::default(),
        }
    }
}

/// Jobs that are waited for before a node's pods are removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitForCompletion {
    /// Their pods, as a label selector; empty for none.
    #[schemars(length(max = 1024))]
    pub pod_selector: String,
    /// How long, in seconds; 0 for ever.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub timeout_seconds: u32,
}

/// How pods that hold engines are removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDeletion {
    /// Remove pods, too, that nothing makes again.
    pub force: bool,
    /// How long that may take, in seconds; 0 for ever.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub timeout_seconds: u32,
    /// Remove pods, too, whose emptyDir is lost by that.
    pub delete_empty_dir: bool,
}

impl Default for PodDeletion {
    fn default() -> Self {
        Self { force: false, timeout_seconds: 300, delete_empty_dir: false }
    }
}

/// Whether and how all other pods are removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// Whether.
    pub enable: bool,
    /// Remove pods, too, that nothing makes again.
    pub force: bool,
    /// Only those, as a label selector; empty for all.
    #[schemars(length(max = 1024))]
    pub pod_selector: String,
    /// How long that may take, in seconds; 0 for ever.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub timeout_seconds: u32,
    /// Remove pods, too, whose emptyDir is lost by that.
    pub delete_empty_dir: bool,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            enable: false,
            force: false,
            pod_selector: String::new(),
            timeout_seconds: 300,
            delete_empty_dir: false,
        }
    }
}
