//! The plugin's config: one pool for each kind of engine, or what the policy has in their place.

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{CONFIG, Place};
use crate::config;
use crate::operator::crd::{KaePolicySpec, UacceView};
use crate::operator::engine::{Engine, VENDOR};

/// The key of the config in its ConfigMap.
pub const CONFIG_KEY: &str = "config.json";
/// The domain of the pools.
const PREFIX: &str = "openfuyao.com";

/// A config that the plugin could not use.
#[derive(Debug, Error)]
#[error("spec.devicePlugin.config cannot be used:\n{0}")]
pub struct ConfigError(String);

/// The config as text.
///
/// # Errors
/// The policy's own pools have an error; all of them are told.
pub fn config_text(policy: &KaePolicySpec) -> Result<String, ConfigError> {
    let pools = match &policy.device_plugin.config {
        Some(pools) => pools.clone(),
        None => policy.operator.enabled().map(|engine| pool(policy, engine)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&json!({ "resourceList": pools }))
        .map_err(|error| ConfigError(error.to_string()))?;
    text.push('\n');
    let checked = config::check(&text, &config::Options { default_prefix: PREFIX, path: CONFIG_KEY });
    let problems: Vec<String> = checked.errors().map(|problem| problem.render(CONFIG_KEY, &text)).collect();
    if problems.is_empty() { Ok(text) } else { Err(ConfigError(problems.join("\n"))) }
}

/// The driver is pinned, so that functions on vfio, for virtual machines, do not mix in.
fn pool(policy: &KaePolicySpec, engine: Engine) -> Value {
    let mut pool = json!({
        "resourceName": format!("kae.{}", engine.as_str()),
        "resourcePrefix": PREFIX,
        "deviceType": "accelerator",
        "selectors": {
            "vendors": [VENDOR],
            "devices": engine.devices(),
            "drivers": [engine.driver()],
        },
        "allocationPolicy": ["numa"],
    });
    let mut extra = Map::new();
    match policy.device_plugin.uacce_view {
        UacceView::Auto => {}
        UacceView::Filtered => drop(extra.insert("uacceView".to_owned(), json!("filtered"))),
        UacceView::Host => drop(extra.insert("uacceView".to_owned(), json!("host"))),
    }
    if let Some(replicas) = policy.device_plugin.replicas {
        extra.insert("replicas".to_owned(), json!(replicas));
    }
    if let Value::Object(pool) = &mut pool {
        pool.extend(extra);
    }
    pool
}

/// The ConfigMap. The plugin reads it again when it changes; no pod has to start again.
pub fn config_map(place: &Place, text: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": place.metadata(CONFIG, true),
        "data": { CONFIG_KEY: text },
    })
}
