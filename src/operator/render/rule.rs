//! The rule by which Node Feature Discovery labels nodes with engines.

use serde_json::{Value, json};

use super::Place;
use crate::operator::engine::{Engine, VENDOR};

/// The rule's name.
pub const RULE: &str = "openfuyao-kae";

/// The rule: facts of the hardware only, whatever the policy manages. The ids of virtual functions are in it, because a virtual
/// machine has nothing else. The class is not, because NFD's own labels know but a few.
pub fn node_feature_rule(place: &Place) -> Value {
    let rules: Vec<Value> = Engine::ALL
        .into_iter()
        .map(|engine| {
            json!({
                "name": format!("kae.{}", engine.as_str()),
                "labels": { (engine.present_label()): "true" },
                "matchFeatures": [{
                    "feature": "pci.device",
                    "matchExpressions": {
                        "vendor": { "op": "In", "value": [VENDOR] },
                        "device": { "op": "In", "value": engine.devices() },
                    },
                }],
            })
        })
        .collect();
    json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": place.metadata(RULE, false),
        "spec": { "rules": rules },
    })
}
