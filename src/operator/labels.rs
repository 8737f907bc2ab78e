//! The labels of a node: what is there, and what is to be changed. Pure.
//!
//! Node Feature Discovery tells which engines a node has. From that, the operator opens gates: labels that the DaemonSets
//! select. A gate that a user has closed (`false`) stays closed until the user writes `true`: it is remembered in an
//! annotation of the node and, because a node object may be made again, in a ConfigMap; where the label is gone, it is
//! written again. Any other value is somebody else's and is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::crd::KaePolicySpec;
use super::engine::Engine;

/// An engine that is managed is there.
pub const PRESENT: &str = "openfuyao.com/kae.present";
/// What the user closed, as [`Closed`] is written.
pub const USER_OVERRIDES: &str = "openfuyao.com/kae.user-overrides";

/// What begins so is written by the operator while it upgrades drivers, as a label or as an annotation.
const OF_UPGRADES: [&str; 2] = ["openfuyao.com/kae-driver-upgrade", "openfuyao.com/kae.driver."];
/// Labels that Node Feature Discovery writes itself begin so.
const OF_NFD: &str = "feature.node.kubernetes.io/";

const OPEN: &str = "true";
const CLOSED: &str = "false";

/// A label that decides where something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gate {
    /// The driver's DaemonSet.
    Driver,
    /// The plugin's.
    DevicePlugin,
    /// Both. Only users write it.
    Operands,
}

impl Gate {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Driver, Self::DevicePlugin, Self::Operands];

    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Driver => "openfuyao.com/kae.deploy.driver",
            Self::DevicePlugin => "openfuyao.com/kae.deploy.device-plugin",
            Self::Operands => "openfuyao.com/kae.deploy.operands",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::DevicePlugin => "device-plugin",
            Self::Operands => "operands",
        }
    }
}

/// The gates that a user has closed: `device-plugin=false,driver=false`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closed(BTreeSet<Gate>);

impl Closed {
    /// Reads what [`Self::to_text`] wrote; words that it does not know are nobody's.
    pub fn parse(text: &str) -> Self {
        let known = |word: &str| {
            let (name, value) = word.trim().split_once('=')?;
            Gate::ALL.into_iter().find(|gate| gate.word() == name && value == CLOSED)
        };
        Self(text.split(',').filter_map(known).collect())
    }

    /// As the annotation has it.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|gate| format!("{}={CLOSED}", gate.word())).collect::<Vec<_>>().join(",")
    }

    /// Whether no gate is closed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, gate: Gate) -> bool {
        self.0.contains(&gate)
    }
}

/// What a policy asks of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    engines: Vec<Engine>,
    driver: bool,
    device_plugin: bool,
}

impl Wanted {
    /// What this policy asks. A driver that is being removed from the nodes needs its gate until that is done.
    pub fn of(policy: &KaePolicySpec, is_cleaning_up: bool) -> Self {
        Self {
            engines: policy.operator.enabled().collect(),
            driver: policy.driver.enabled || is_cleaning_up,
            device_plugin: policy.device_plugin.enabled,
        }
    }

    fn wants(&self, gate: Gate) -> bool {
        match gate {
            Gate::Driver => self.driver,
            Gate::DevicePlugin => self.device_plugin,
            Gate::Operands => false,
        }
    }
}

/// A node, as far as this module looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// All its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// All its annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// What was remembered of a node of this name.
    pub remembered: Option<&'a Closed>,
    /// For how long its engines have been seen to be away; nothing where they are there.
    pub absent_for: Option<Duration>,
}

impl Node<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether Node Feature Discovery tells of this engine.
    pub fn has(&self, engine: Engine) -> bool {
        self.label(engine.present_label()) == Some(OPEN)
    }

    /// Whether it has an engine that is managed.
    pub fn has_any(&self, wanted: &Wanted) -> bool {
        wanted.engines.iter().any(|engine| self.has(*engine))
    }

    /// Whether Node Feature Discovery has been here.
    pub fn is_discovered(&self) -> bool {
        let is_open = |label: &str| self.label(label) == Some(OPEN);
        self.labels.keys().any(|key| is_of_nfd(key))
            || Engine::ALL.iter().any(|engine| is_open(engine.present_label()))
    }
}

/// What is to be done with a node, and what is to be told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// A merge patch of our keys only.
    pub patch: Option<Value>,
    /// What the user closed.
    pub closed: Closed,
    /// It gets operands now.
    pub comes: bool,
    /// It loses operands now, because its engines are away.
    pub goes: bool,
    /// A gate is closed now, or again.
    pub honours: bool,
    /// It has lost its engines, and keeps its operands for a while.
    pub waits: bool,
}

/// Decides. Engines that have been away for `debounce` are gone: Node Feature Discovery drops its labels for a moment when
/// it starts again.
pub fn decide(node: Node<'_>, wanted: &Wanted, debounce: Duration) -> Decision {
    let noted = node.annotations.get(USER_OVERRIDES).map(|text| Closed::parse(text)).unwrap_or_default();
    let mut closed = Closed(BTreeSet::new());
    let mut labels = Map::new();
    for gate in Gate::ALL {
        let known = noted.has(gate) || node.remembered.is_some_and(|remembered| remembered.has(gate));
        match node.label(gate.label()) {
            Some(CLOSED) => drop(closed.0.insert(gate)),
            Some(OPEN) => {}
            Some(_) if known => drop(closed.0.insert(gate)),
            None if known => {
                closed.0.insert(gate);
                labels.insert(gate.label().to_owned(), json!(CLOSED));
            }
            Some(_) | None => {}
        }
    }
    let has_any = node.has_any(wanted);
    let is_gone =
        !has_any && (wanted.engines.is_empty() || node.absent_for.is_some_and(|absent| absent >= debounce));
    for gate in [Gate::Driver, Gate::DevicePlugin] {
        let may_run = wanted.wants(gate) && !closed.has(Gate::Operands);
        match node.label(gate.label()) {
            None if has_any && may_run && !closed.has(gate) => {
                labels.insert(gate.label().to_owned(), json!(OPEN));
            }
            Some(OPEN) if is_gone || !may_run => {
                labels.insert(gate.label().to_owned(), Value::Null);
            }
            _ => {}
        }
    }
    let (mut comes, mut goes) = (false, false);
    let present = node.label(PRESENT);
    if has_any && present.is_none() {
        labels.insert(PRESENT.to_owned(), json!(OPEN));
        comes = true;
    } else if is_gone && present == Some(OPEN) {
        labels.insert(PRESENT.to_owned(), Value::Null);
        goes = !wanted.engines.is_empty();
    }
    let mut annotations = Map::new();
    let text = closed.to_text();
    match node.annotations.get(USER_OVERRIDES) {
        Some(_) if closed.is_empty() => drop(annotations.insert(USER_OVERRIDES.to_owned(), Value::Null)),
        noted if !closed.is_empty() && noted != Some(&text) => {
            annotations.insert(USER_OVERRIDES.to_owned(), json!(text));
        }
        _ => {}
    }
    let honours = annotations.get(USER_OVERRIDES).is_some_and(Value::is_string)
        || labels.values().any(|value| value == CLOSED);
    let is_open = |key: &str| node.label(key) == Some(OPEN);
    let waits = !has_any
        && !is_gone
        && [PRESENT, Gate::Driver.label(), Gate::DevicePlugin.label()].into_iter().any(is_open);
    Decision { patch: patch(labels, annotations), closed, comes, goes, honours, waits }
}

/// Takes away what the operator wrote. What the user wrote stays: the labels that are `false`.
pub fn withdraw(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Option<Value> {
    let is_of_upgrades = |key: &str| OF_UPGRADES.iter().any(|start| key.starts_with(start));
    let written = [PRESENT, Gate::Driver.label(), Gate::DevicePlugin.label()];
    let mine = labels.iter().filter(|(key, value)| {
        is_of_upgrades(key) || written.contains(&key.as_str()) && value.as_str() == OPEN
    });
    let labels = mine.map(|(key, _)| (key.clone(), Value::Null)).collect();
    let mine = annotations.keys().filter(|key| is_of_upgrades(key) || *key == USER_OVERRIDES);
    patch(labels, mine.map(|key| (key.clone(), Value::Null)).collect())
}

fn patch(labels: Map<String, Value>, annotations: Map<String, Value>) -> Option<Value> {
    let mut metadata = Map::new();
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}

/// A label or an annotation that is looked at: the operator's, the users', and those that tell of engines.
pub fn is_of_interest(key: &str) -> bool {
    key.starts_with("openfuyao.com/kae")
}

/// A label of Node Feature Discovery itself.
pub fn is_of_nfd(key: &str) -> bool {
    key.starts_with(OF_NFD)
}

#[cfg(test)]
mod tests;
