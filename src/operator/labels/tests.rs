use proptest::prelude::*;

use super::*;

const DEBOUNCE: Duration = Duration::from_secs(60);

type Words = BTreeMap<String, String>;

fn words(pairs: &[(&str, &str)]) -> Words {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn everything() -> Wanted {
    Wanted { engines: Engine::ALL.to_vec(), driver: true, device_plugin: true }
}

fn hpre_alone() -> Wanted {
    Wanted { engines: vec![Engine::Hpre], driver: true, device_plugin: true }
}

/// A merge patch, as the API server applies it.
fn apply(words: &mut Words, patch: &Value, part: &str) {
    for (key, value) in patch["metadata"][part].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(text) => drop(words.insert(key.clone(), text.to_owned())),
            None => drop(words.remove(key)),
        }
    }
}

/// A node that lives on while the operator looks at it.
#[derive(Debug, Clone, Default)]
struct Living {
    labels: Words,
    annotations: Words,
    remembered: Closed,
}

impl Living {
    fn of(labels: &[(&str, &str)]) -> Self {
        Self { labels: words(labels), ..Self::default() }
    }

    fn look(&mut self, wanted: &Wanted, absent_for: Option<Duration>) -> Decision {
        let node = Node {
            labels: &self.labels,
            annotations: &self.annotations,
            remembered: Some(&self.remembered),
            absent_for,
        };
        let decision = decide(node, wanted, DEBOUNCE);
        if let Some(patch) = &decision.patch {
            apply(&mut self.labels, patch, "labels");
            apply(&mut self.annotations, patch, "annotations");
        }
        self.remembered = decision.closed.clone();
        decision
    }

    fn gate(&self, gate: Gate) -> Option<&str> {
        self.labels.get(gate.label()).map(String::as_str)
    }
}

const HPRE: (&str, &str) = ("openfuyao.com/kae.hpre.present", "true");

#[test]
fn a_node_with_an_engine_gets_its_labels_in_one_patch() {
    let mut node = Living::of(&[HPRE]);
    let decision = node.look(&hpre_alone(), None);
    assert!(decision.comes && !decision.honours);
    assert_eq!(
        decision.patch.unwrap(),
        json!({"metadata": {"labels": {
            "openfuyao.com/kae.deploy.driver": "true",
            "openfuyao.com/kae.deploy.device-plugin": "true",
            "openfuyao.com/kae.present": "true",
        }}})
    );
}

#[test]
fn an_engine_that_is_not_managed_is_no_reason() {
    let mut node = Living::of(&[("openfuyao.com/kae.sec.present", "true")]);
    assert_eq!(node.look(&hpre_alone(), Some(DEBOUNCE)).patch, None);
}

#[test]
fn engines_that_are_away_for_a_moment_change_nothing() {
    let mut node = Living::of(&[HPRE]);
    node.look(&hpre_alone(), None);
    node.labels.remove(HPRE.0);
    let decision = node.look(&hpre_alone(), Some(DEBOUNCE - Duration::from_millis(1)));
    assert_eq!(decision.patch, None);
    assert!(decision.waits);
    let decision = node.look(&hpre_alone(), Some(DEBOUNCE));
    assert!(decision.goes && !decision.waits);
    assert_eq!(node.labels, Words::new());
}

#[test]
fn when_no_engine_is_managed_nothing_is_waited_for() {
    let mut node = Living::of(&[HPRE]);
    node.look(&hpre_alone(), None);
    let none = Wanted { engines: Vec::new(), ..hpre_alone() };
    assert!(!node.look(&none, None).goes);
    assert_eq!(node.labels, words(&[HPRE]));
}

#[test]
fn an_opt_out_survives_a_reboot_and_a_device_that_comes_back() {
    let mut node = Living::of(&[HPRE]);
    node.look(&hpre_alone(), None);
    node.labels.insert(Gate::Driver.label().to_owned(), "false".to_owned());
    assert!(node.look(&hpre_alone(), None).honours);
    node.labels.remove(HPRE.0);
    node.look(&hpre_alone(), Some(DEBOUNCE));
    // Whatever resets the node's labels.
    node.labels = words(&[HPRE]);
    assert!(node.look(&hpre_alone(), None).honours);
    assert_eq!(node.gate(Gate::Driver), Some("false"));
    assert_eq!(node.gate(Gate::DevicePlugin), Some("true"));
    // The node object is made again: its annotations are gone, too.
    let mut again = Living { labels: words(&[HPRE]), annotations: Words::new(), remembered: node.remembered };
    again.look(&hpre_alone(), None);
    assert_eq!(again.gate(Gate::Driver), Some("false"));
    assert_eq!(again.annotations[USER_OVERRIDES], "driver=false");
}

#[test]
fn an_opt_out_ends_with_true() {
    let mut node = Living::of(&[HPRE, (Gate::Driver.label(), "false")]);
    node.look(&hpre_alone(), None);
    node.labels.insert(Gate::Driver.label().to_owned(), "true".to_owned());
    node.look(&hpre_alone(), None);
    assert!(node.annotations.is_empty() && node.remembered.is_empty());
}

#[test]
fn a_node_that_is_opted_out_of_everything_loses_both_gates() {
    let mut node = Living::of(&[HPRE]);
    node.look(&hpre_alone(), None);
    node.labels.insert(Gate::Operands.label().to_owned(), "false".to_owned());
    node.look(&hpre_alone(), None);
    assert_eq!(node.labels, words(&[HPRE, (PRESENT, "true"), (Gate::Operands.label(), "false")]));
    node.labels.insert(Gate::Operands.label().to_owned(), "true".to_owned());
    node.look(&hpre_alone(), None);
    assert_eq!(node.gate(Gate::Driver), Some("true"));
}

#[test]
fn a_component_that_is_not_wanted_loses_its_gate() {
    let mut node = Living::of(&[HPRE]);
    node.look(&hpre_alone(), None);
    node.look(&Wanted { driver: false, ..hpre_alone() }, None);
    assert_eq!(node.gate(Gate::Driver), None);
    assert_eq!(node.gate(Gate::DevicePlugin), Some("true"));
}

#[test]
fn what_is_withdrawn_is_what_the_operator_wrote() {
    let mut node = Living::of(&[HPRE, (Gate::DevicePlugin.label(), "false"), ("other", "true")]);
    node.look(&hpre_alone(), None);
    node.labels.insert("openfuyao.com/kae-driver-upgrade-state".to_owned(), "upgrade-done".to_owned());
    node.annotations.insert("foreign".to_owned(), "kept".to_owned());
    let patch = withdraw(&node.labels, &node.annotations).unwrap();
    apply(&mut node.labels, &patch, "labels");
    apply(&mut node.annotations, &patch, "annotations");
    assert_eq!(node.labels, words(&[HPRE, (Gate::DevicePlugin.label(), "false"), ("other", "true")]));
    assert_eq!(node.annotations, words(&[("foreign", "kept")]));
    assert_eq!(withdraw(&node.labels, &node.annotations), None);
}

fn any_node() -> impl Strategy<Value = Living> {
    let value = || prop_oneof![Just("true"), Just("false"), Just(""), Just("paused-for-upgrade")];
    let key = prop_oneof![
        Just(HPRE.0),
        Just("openfuyao.com/kae.sec.present"),
        Just(PRESENT),
        Just(Gate::Driver.label()),
        Just(Gate::DevicePlugin.label()),
        Just(Gate::Operands.label()),
        Just("kubernetes.io/hostname"),
    ];
    let closed =
        prop_oneof![Just(""), Just("driver=false"), Just("operands=false,driver=false"), Just("!?,x=,=")];
    (proptest::collection::btree_map(key, value(), 0..7), proptest::option::of(closed.clone()), closed)
        .prop_map(|(labels, noted, remembered)| Living {
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            annotations: noted.map(|text| (USER_OVERRIDES.to_owned(), text.to_owned())).into_iter().collect(),
            remembered: Closed::parse(remembered),
        })
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    (proptest::sample::subsequence(Engine::ALL.to_vec(), 0..=3), any::<bool>(), any::<bool>())
        .prop_map(|(engines, driver, device_plugin)| Wanted { engines, driver, device_plugin })
}

proptest! {
    #[test]
    fn once_patched_a_node_is_left_alone(mut node in any_node(), wanted in any_wanted(), away in proptest::option::of(0_u64..120)) {
        let away = away.map(Duration::from_secs);
        node.look(&wanted, away);
        prop_assert_eq!(node.look(&wanted, away).patch, None);
    }

    #[test]
    fn no_value_is_overwritten_and_only_ours_are_removed(before in any_node(), wanted in any_wanted(), away in proptest::option::of(0_u64..120)) {
        let mut after = before.clone();
        after.look(&wanted, away.map(Duration::from_secs));
        for (key, value) in &before.labels {
            match after.labels.get(key) {
                Some(now) => prop_assert!(now == value || value.is_empty(), "{key}: {value} became {now}"),
                None => prop_assert!(value == "true" && is_of_interest(key) && !key.ends_with("operands"), "{key}: {value}"),
            }
        }
        for key in after.labels.keys().filter(|key| !before.labels.contains_key(*key)) {
            prop_assert!(is_of_interest(key));
        }
    }

    #[test]
    fn a_closed_gate_stays_closed_whatever_happens(
        labels in any_node(),
        wanted in proptest::collection::vec((any_wanted(), proptest::option::of(0_u64..120)), 1..5),
    ) {
        let mut node = labels;
        node.labels.insert(Gate::Driver.label().to_owned(), "false".to_owned());
        for (wanted, away) in wanted {
            node.look(&wanted, away.map(Duration::from_secs));
            prop_assert_eq!(node.gate(Gate::Driver), Some("false"));
            // A reboot that loses every label.
            node.labels.clear();
        }
        node.look(&everything(), None);
        prop_assert_eq!(node.gate(Gate::Driver), Some("false"));
    }

    #[test]
    fn what_is_read_back_is_what_was_written(gates in proptest::sample::subsequence(Gate::ALL.to_vec(), 0..=3)) {
        let closed = Closed(gates.into_iter().collect());
        prop_assert_eq!(Closed::parse(&closed.to_text()), closed);
    }
}
