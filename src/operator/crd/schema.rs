//! Parts of the schema that Rust's types do not say.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::KaePolicy;

/// What a label may be (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>).
const LABEL_KEY: &str =
    "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// What an amount may be (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
const QUANTITY: &str = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$";

/// The definition of KAEPolicy, as the API server gets it.
///
/// Nothing is nullable: then the API server drops a null and puts the default in its place, and no null reaches a reader.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = KaePolicy::crd();
    for version in &mut definition.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            drop_nullable(schema);
        }
    }
    definition
}

fn drop_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flat_map(BTreeMap::values_mut).for_each(drop_nullable);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_nullable(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        drop_nullable(values);
    }
}

pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, key.matches('{LABEL_KEY}'))"),
            "message": "a label's name is letters, digits, -, _ and ., with a domain and / before it or not",
        }],
    })
}

pub(super) fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 4096},
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, key.matches('{LABEL_KEY}'))"),
            "message": "an annotation's name is letters, digits, -, _ and ., with a domain and / before it or not",
        }],
    })
}

pub(super) fn absolute_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 1024,
        "x-kubernetes-validations": [{
            "rule": "self.startsWith('/') && !self.contains(':') && !self.matches('(^|/)[.][.](/|$)')",
            "message": "write an absolute path without .. and without a colon",
        }],
    })
}

/// An int or a percentage, from one up.
pub(super) fn rolling_unavailable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9]|[1-9][0-9]|100)%$')",
            "message": "maxUnavailable is a number of at least 1, or 1% to 100%",
        }],
    })
}

/// An int or a percentage, from zero up.
pub(super) fn unavailable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 0 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",
            "message": "maxUnavailable is a number from 0 up, or 0% to 100%",
        }],
    })
}

fn amounts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
            "pattern": QUANTITY,
        },
    })
}

/// What a container asks for, and what it may take at most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Resources {
    /// At least.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "amounts")]
    pub requests: BTreeMap<String, Quantity>,
    /// At most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "amounts")]
    pub limits: BTreeMap<String, Quantity>,
}
