//! The driver's part of the policy.

use k8s_openapi::api::core::v1::EnvVar;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::Resources;
use super::{UpgradePolicy, image};
use crate::operator::engine::Engine;

/// The variable of the installer that decides whether a driver that is there is kept.
pub const INSTALL_POLICY: &str = "INSTALL_POLICY";
/// The same, as the user documentation of openFuyao 25.06 prints it.
pub const MISPRINTED_INSTALL_POLICY: &str = "KEYINSTALL_POLICY";

/// The driver of the engines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules()))]
pub struct Driver {
    /// Install and keep the driver. Without it, the driver's DaemonSet is removed, and nothing else here has an effect.
    pub enabled: bool,
    /// Remove the driver from the nodes when the policy is deleted, or when `enabled` becomes false.
    pub enabled_cleanup: bool,
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
    /// Variables of the installer. INSTALL_POLICY is one of them, and wins over `installPolicy`.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    /// Whether a driver that is there already is kept.
    pub install_policy: InstallPolicy,
    /// How the driver offers its queues to user space.
    pub uacce_mode: UacceMode,
    /// Queues that a physical function keeps for itself. Without it, as many as the driver decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1024))]
    pub pf_queue_num: Option<u32>,
    /// Virtual functions that each physical function gets.
    pub vfs: VirtualFunctions,
    /// Who may open the engines' device nodes.
    pub device_permissions: DevicePermissions,
    /// What the installer's pod asks for.
    pub resources: Resources,
    /// How long the driver's pod may take until it is ready.
    pub startup_probe: StartupProbe,
    /// How nodes get a new version.
    pub upgrade_policy: UpgradePolicy,
}

fn rules() -> Value {
    json!([
        {"rule": image::RULE, "message": image::MESSAGE},
        {
            "rule": format!(
                "!has(self.env) || self.env.all(e, !(e.name in ['{INSTALL_POLICY}', '{MISPRINTED_INSTALL_POLICY}']) \
                 || (has(e.value) && e.value in ['IfNotPresent', 'Always']))"
            ),
            "message": "INSTALL_POLICY is IfNotPresent or Always",
        },
    ])
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            enabled: true,
            enabled_cleanup: false,
            repository: None,
            image: None,
            version: None,
            image_pull_policy: PullPolicy::default(),
            env: Vec::new(),
            install_policy: InstallPolicy::default(),
            uacce_mode: UacceMode::default(),
            pf_queue_num: None,
            vfs: VirtualFunctions::default(),
            device_permissions: DevicePermissions::default(),
            resources: Resources::default(),
            startup_probe: StartupProbe::default(),
            upgrade_policy: UpgradePolicy::default(),
        }
    }
}

impl Driver {
    /// The image's name where the policy has none.
    pub const IMAGE: &str = "kae-driver-installer";

    /// The image's full reference.
    pub fn image(&self) -> String {
        let [repository, image, version] =
            [&self.repository, &self.image, &self.version].map(Option::as_deref);
        image::reference(repository, image, version, Self::IMAGE)
    }

    /// What `INSTALL_POLICY` is to be. The variable wins over the field, and its right name over the misprint.
    pub fn effective_install_policy(&self) -> InstallPolicy {
        let named = |name: &str| {
            let variable = self.env.iter().find(|variable| variable.name == name)?;
            InstallPolicy::parse(variable.value.as_deref()?)
        };
        named(INSTALL_POLICY).or_else(|| named(MISPRINTED_INSTALL_POLICY)).unwrap_or(self.install_policy)
    }
}

/// When an image is pulled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// When the node has none.
    #[default]
    IfNotPresent,
    /// At each start.
    Always,
    /// Never.
    Never,
}

impl PullPolicy {
    /// As a container writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
            Self::Never => "Never",
        }
    }
}

/// Whether a driver that is there already is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstallPolicy {
    /// It is kept.
    #[default]
    IfNotPresent,
    /// It is removed, and the image's is installed.
    Always,
}

impl InstallPolicy {
    /// As the installer reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::IfNotPresent, Self::Always].into_iter().find(|policy| policy.as_str() == text)
    }
}

/// How the driver offers its queues to user space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UacceMode {
    /// As the driver that is installed can.
    #[default]
    Auto,
    /// With shared virtual addresses.
    #[serde(rename = "SVA")]
    Sva,
    /// Without.
    #[serde(rename = "NoSVA")]
    NoSva,
}

impl UacceMode {
    /// As the installer reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sva => "sva",
            Self::NoSva => "nosva",
        }
    }
}

/// Virtual functions that each physical function gets; without a number, the driver's are left as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VirtualFunctions {
    /// Of HPRE engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 63))]
    pub hpre: Option<u32>,
    /// Of SEC engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 63))]
    pub sec: Option<u32>,
    /// Of ZIP engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 63))]
    pub zip: Option<u32>,
}

impl VirtualFunctions {
    /// Those of one kind of engine.
    pub fn of(&self, engine: Engine) -> Option<u32> {
        match engine {
            Engine::Hpre => self.hpre,
            Engine::Sec => self.sec,
            Engine::Zip => self.zip,
        }
    }
}

/// Who may open the engines' device nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DevicePermissions {
    /// The mode in octal. Pods that do not run as root need 0666, or a group that they are in.
    #[schemars(regex(pattern = "^0?[0-7]{3}$"))]
    pub mode: String,
    /// The group, by its name on the node; empty for the one that they have.
    #[schemars(regex(pattern = "^([a-z_][a-z0-9_-]{0,30})?$"))]
    pub group: String,
}

impl Default for DevicePermissions {
    fn default() -> Self {
        Self { mode: "0666".to_owned(), group: String::new() }
    }
}

/// How long the driver's pod may take until it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StartupProbe {
    /// Seconds before the first question.
    #[schemars(range(min = 0, max = 3600))]
    pub initial_delay_seconds: i32,
    /// Seconds between two.
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: i32,
    /// How long an answer may take, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
    /// After so many bad answers the container is started again.
    #[schemars(range(min = 1, max = 10_000))]
    pub failure_threshold: i32,
}

impl Default for StartupProbe {
    fn default() -> Self {
        Self { initial_delay_seconds: 0, period_seconds: 2, timeout_seconds: 5, failure_threshold: 150 }
    }
}
