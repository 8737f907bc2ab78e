//! `KAEPolicy`: what a cluster's administrator asks for. One of them, named [`SINGLETON`], governs the cluster.
//!
//! The API server checks: types, limits and rules are in the schema, so that a bad value is refused with its reason when
//! it is written. Everything has a limit, because the cost of a rule is estimated from the largest object possible.

mod driver;
mod image;
mod plugin;
mod schema;
mod status;
mod upgrade;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::engine::Engine;

pub use driver::{
    DevicePermissions, Driver, INSTALL_POLICY, InstallPolicy, MISPRINTED_INSTALL_POLICY, PullPolicy,
    StartupProbe, UacceMode, VirtualFunctions,
};
pub use image::{DEFAULT_REPOSITORY, DEFAULT_VERSION, reference};
pub use plugin::{ConfigMapReference, DevicePlugin, UacceView};
pub use schema::{Resources, definition};
pub use status::{
    Component, KaePolicyStatus, NodeCounts, NodeUpgrade, State, UpgradeStatus, condition, reason,
};
pub use upgrade::{Drain, PodDeletion, UpgradePolicy, WaitForCompletion};

/// The one policy that is followed.
pub const SINGLETON: &str = "kae-policy";

/// How a cluster's Kunpeng accelerators are driven and offered.
#[derive(CustomResource, JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "device.openfuyao.com",
    version = "v1",
    kind = "KAEPolicy",
    root = "KaePolicy",
    plural = "kaepolicies",
    singular = "kaepolicy",
    shortname = "kaep",
    status = "KaePolicyStatus",
    derive = "PartialEq",
    doc = "A KAEPolicy says how the Kunpeng accelerators of a cluster are driven and offered. The one named kae-policy is followed.",
    printcolumn = r#"{"name": "State", "type": "string", "jsonPath": ".status.state"}"#,
    printcolumn = r#"{"name": "HPRE", "type": "integer", "jsonPath": ".status.nodes.hpre", "description": "Nodes with HPRE engines"}"#,
    printcolumn = r#"{"name": "SEC", "type": "integer", "jsonPath": ".status.nodes.sec", "description": "Nodes with SEC engines"}"#,
    printcolumn = r#"{"name": "ZIP", "type": "integer", "jsonPath": ".status.nodes.zip", "description": "Nodes with ZIP engines"}"#,
    printcolumn = r#"{"name": "Driver", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"DriverReady\")].status"}"#,
    printcolumn = r#"{"name": "Plugin", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"DevicePluginReady\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct KaePolicySpec {
    /// Which engines are managed.
    pub operator: Engines,
    /// What holds for the pods of all components.
    pub daemon_sets: DaemonSets,
    /// The driver of the engines.
    pub driver: Driver,
    /// The device plugin.
    pub device_plugin: DevicePlugin,
    /// Pod Security Admission.
    pub psa: PodSecurity,
    /// Where the directories of a node are.
    pub host_paths: HostPaths,
}

/// Which engines are managed. None is valid: then nothing is deployed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Engines {
    /// HPRE: RSA, DH and elliptic curves.
    #[serde(rename = "enabledHPRE")]
    pub enabled_hpre: bool,
    /// SEC: ciphers and digests.
    #[serde(rename = "enabledSEC")]
    pub enabled_sec: bool,
    /// ZIP: compression.
    #[serde(rename = "enabledZIP")]
    pub enabled_zip: bool,
}

impl Default for Engines {
    fn default() -> Self {
        Self { enabled_hpre: true, enabled_sec: false, enabled_zip: false }
    }
}

impl Engines {
    /// Those that are managed.
    pub fn enabled(&self) -> impl Iterator<Item = Engine> + '_ {
        Engine::ALL.into_iter().filter(|engine| self.is_enabled(*engine))
    }

    /// Whether an engine is managed.
    pub fn is_enabled(&self, engine: Engine) -> bool {
        match engine {
            Engine::Hpre => self.enabled_hpre,
            Engine::Sec => self.enabled_sec,
            Engine::Zip => self.enabled_zip,
        }
    }
}

/// What holds for the pods of all components.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSets {
    /// Labels of the pods. What the operator needs for itself wins.
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    #[schemars(schema_with = "schema::annotations")]
    pub annotations: BTreeMap<String, String>,
    /// Taints of nodes that the pods tolerate.
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// The pods' priority class; empty for none.
    #[schemars(length(max = 253), regex(pattern = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$"))]
    pub priority_class_name: String,
    /// How pods of the device plugin are replaced. Pods of the driver never are without being told: see `driver.upgradePolicy`.
    pub update_strategy: UpdateStrategy,
    /// For the update strategy RollingUpdate.
    pub rolling_update: RollingUpdate,
    /// Secrets for pulling images, in the operator's namespace.
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

impl Default for DaemonSets {
    fn default() -> Self {
        Self {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class_name: "system-node-critical".to_owned(),
            update_strategy: UpdateStrategy::default(),
            rolling_update: RollingUpdate::default(),
            image_pull_secrets: Vec::new(),
        }
    }
}

/// How pods of the device plugin are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategy {
    /// One after the other.
    #[default]
    RollingUpdate,
    /// When somebody deletes them.
    OnDelete,
}

impl UpdateStrategy {
    /// As a DaemonSet writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RollingUpdate => "RollingUpdate",
            Self::OnDelete => "OnDelete",
        }
    }
}

/// For the update strategy RollingUpdate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// Most nodes at a time without the pod: a number of at least 1, or 1% to 100%.
    #[schemars(schema_with = "schema::rolling_unavailable")]
    pub max_unavailable: IntOrString,
}

impl Default for RollingUpdate {
    fn default() -> Self {
        Self { max_unavailable: IntOrString::Int(1) }
    }
}

/// Pod Security Admission.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PodSecurity {
    /// Label the operator's namespace for privileged pods: the driver's are.
    pub enabled: bool,
}

/// Where the directories of a node are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostPaths {
    /// The root of the node's file system.
    #[serde(rename = "rootFS")]
    #[schemars(schema_with = "schema::absolute_path")]
    pub root_fs: String,
    /// The kubelet's root directory. Its folder for device plugins is always /var/lib/kubelet/device-plugins.
    #[schemars(schema_with = "schema::absolute_path")]
    pub kubelet_root_dir: String,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self { root_fs: "/".to_owned(), kubelet_root_dir: "/var/lib/kubelet".to_owned() }
    }
}
