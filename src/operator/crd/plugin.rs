//! The device plugin's part of the policy.

use k8s_openapi::api::core::v1::EnvVar;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::driver::PullPolicy;
use super::image;
use super::schema::Resources;

/// The device plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules()))]
pub struct DevicePlugin {
    /// Offer the engines. Without it, the plugin's DaemonSet is removed, and nothing else here has an effect.
    pub enabled: bool,
    /// Where the image is. With a repository and a version, `image` is a name below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image::repository")]
    pub repository: Option<String>,
    /// The image's name, or without repository and version its full reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image::name")]
    pub image: Option<String>,
    /// The image's tag or digest (`sha256:…`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image::version")]
    pub version: Option<String>,
    /// When the image is pulled.
    pub image_pull_policy: PullPolicy,
    /// Variables of the plugin.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    /// Further arguments of the plugin.
    #[schemars(length(max = 32), inner(length(max = 1024)))]
    pub args: Vec<String>,
    /// What the plugin asks for; without it, a little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// What a container sees in /sys/class/uacce.
    pub uacce_view: UacceView,
    /// How many containers share an engine. Without it, one has it alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: Option<u32>,
    /// Pools, in place of those that follow from the engines: what a config of the plugin has in `resourceList`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "config")]
    pub config: Option<Vec<Value>>,
    /// A ConfigMap of yours in the operator's namespace, in place of the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapReference>,
}

fn rules() -> Value {
    json!([
        {"rule": image::RULE, "message": image::MESSAGE},
        {
            "rule": "!has(self.config) || !has(self.configMapRef)",
            "message": "write config or configMapRef, not both",
        },
    ])
}

fn config(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

impl Default for DevicePlugin {
    fn default() -> Self {
        Self {
            enabled: true,
            repository: None,
            image: None,
            version: None,
            image_pull_policy: PullPolicy::default(),
            env: Vec::new(),
            args: Vec::new(),
            resources: None,
            uacce_view: UacceView::default(),
            replicas: None,
            config: None,
            config_map_ref: None,
        }
    }
}

impl DevicePlugin {
    /// The image's name where the policy has none.
    pub const IMAGE: &str = "kae-device-plugin";

    /// The image's full reference.
    pub fn image(&self) -> String {
        let [repository, image, version] =
            [&self.repository, &self.image, &self.version].map(Option::as_deref);
        image::reference(repository, image, version, Self::IMAGE)
    }
}

/// What a container sees in `/sys/class/uacce`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UacceView {
    /// Its own engines where one kind of engine is managed, else all of the node's.
    #[default]
    Auto,
    /// Its own engines.
    Filtered,
    /// All of the node's.
    Host,
}

/// A ConfigMap, and the key of the config in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapReference {
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The key.
    #[serde(default = "config_key")]
    #[schemars(length(max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

fn config_key() -> String {
    "config.json".to_owned()
}
