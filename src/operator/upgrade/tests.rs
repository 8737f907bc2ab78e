//! A small world that obeys the actions, with people who get in the way.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::prelude::*;

use super::facts::{Cordon, DriverPod, NodeFacts, PodFacts, Pods, State};
use super::step::{Action, Decision, step};
use crate::operator::crd::UpgradePolicy;
use crate::operator::events::Happening;

/// A node whose driver is older than the DaemonSet says.
fn outdated(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.to_owned(),
        state: None,
        since: 0,
        reason: String::new(),
        failed_revision: None,
        is_selected: true,
        is_skipped: false,
        cordon: Cordon::No,
        is_ready: true,
        driver: pod(false, true),
        pods: Some(Pods::default()),
    }
}

fn pod(is_newest: bool, is_ready: bool) -> DriverPod {
    DriverPod::Present { name: "driver-x".to_owned(), is_newest, is_ready, is_leaving: false, failure: None }
}

fn holder(name: &str, is_managed: bool) -> PodFacts {
    let text = |text: &str| text.to_owned();
    PodFacts { namespace: text("apps"), name: text(name), uid: text(name), is_managed, ..PodFacts::default() }
}

fn holding(holders: Vec<PodFacts>) -> Pods {
    Pods { holders, ..Pods::default() }
}

fn held(node: &mut NodeFacts) -> &mut Vec<PodFacts> {
    &mut node.pods.get_or_insert_default().holders
}

fn automatic() -> UpgradePolicy {
    UpgradePolicy { auto_upgrade: true, ..UpgradePolicy::default() }
}

/// What the policy makes of one node at a time.
fn one(policy: &UpgradePolicy, now: i64, node: &NodeFacts) -> Decision {
    step(policy, "new", now, std::slice::from_ref(node)).remove(0)
}

/// Writes down what was decided.
fn write(node: &mut NodeFacts, decision: &Decision) {
    node.state = decision.state;
    node.since = decision.since;
    node.reason.clone_from(&decision.reason);
    node.failed_revision.clone_from(&decision.failed_revision);
}

#[test]
fn a_node_goes_through_every_step_in_its_order() {
    let mut policy = automatic();
    policy.drain.enable = true;
    policy.wait_for_completion.pod_selector = "job".to_owned();
    let mut node = outdated("a");
    node.pods =
        Some(Pods { jobs: 1, holders: vec![holder("web", true)], others: vec![holder("other", true)] });
    let mut lines = Vec::new();
    for now in 0..20 {
        let decision = one(&policy, now, &node);
        let state = decision.state.unwrap().as_str();
        let actions = decision.actions.iter().map(|action| match action {
            Action::Evict(pod) => format!("evict {}", pod.shown()),
            action => format!("{action:?}"),
        });
        let done = actions.collect::<Vec<_>>().join(", ");
        lines.push(
            format!("{state} [{done}] {:?} {}", decision.happenings, decision.reason).trim_end().to_owned(),
        );
        write(&mut node, &decision);
        for action in decision.actions {
            match action {
                Action::Cordon => node.cordon = Cordon::Ours,
                Action::Uncordon => node.cordon = Cordon::No,
                Action::Evict(gone) => {
                    let pods = node.pods.as_mut().unwrap();
                    pods.holders.retain(|pod| *pod != gone);
                    pods.others.retain(|pod| *pod != gone);
                }
                Action::Restart(_) => node.driver = pod(true, false),
            }
        }
        // Each waits once.
        match node.state {
            Some(State::WaitForJobsRequired) => node.pods.as_mut().unwrap().jobs = 0,
            Some(State::ValidationRequired) => node.driver = pod(true, true),
            Some(State::UpgradeDone) => break,
            _ => {}
        }
    }
    insta::assert_snapshot!("upgrade_steps", lines.join("\n"));
}

#[test]
fn a_node_that_somebody_else_cordoned_is_upgraded_and_stays_cordoned() {
    let mut node = outdated("a");
    node.cordon = Cordon::Foreign;
    let decision = one(&automatic(), 1, &node);
    assert_eq!(decision.actions, [Action::Restart("driver-x".to_owned())]);
    write(&mut node, &decision);
    node.driver = pod(true, true);
    let decision = one(&automatic(), 2, &node);
    assert_eq!((decision.state, decision.actions.len()), (Some(State::UpgradeDone), 0));
}

#[test]
fn a_node_that_somebody_cordoned_meanwhile_stays_cordoned() {
    let mut node = outdated("a");
    node.state = Some(State::UncordonRequired);
    node.driver = pod(true, true);
    node.cordon = Cordon::Foreign;
    assert_eq!(one(&automatic(), 1, &node).actions, []);
    node.cordon = Cordon::Ours;
    assert_eq!(one(&automatic(), 1, &node).actions, [Action::Uncordon]);
}

#[test]
fn pods_that_nothing_makes_again_are_left_until_the_time_is_over_and_then_named() {
    let mut node = outdated("a");
    node.state = Some(State::PodDeletionRequired);
    node.cordon = Cordon::Ours;
    node.pods = Some(holding(vec![holder("bare", false), holder("web", true)]));
    let decision = one(&automatic(), 299, &node);
    assert_eq!(decision.actions, [Action::Evict(holder("web", true))]);
    let decision = one(&automatic(), 300, &node);
    assert_eq!(decision.state, Some(State::UpgradeFailed));
    assert_eq!(decision.actions, [Action::Uncordon], "a node that failed is given back");
    assert_eq!(decision.happenings, [Happening::UpgradeFailed]);
    insta::assert_snapshot!(decision.reason, @"not in time: pods are being evicted: apps/web; nothing makes these pods again, or they lose an emptyDir, and podDeletion allows neither: apps/bare");
    let mut policy = automatic();
    policy.pod_deletion.force = true;
    assert_eq!(one(&policy, 1, &node).actions.len(), 2);
    node.pods = Some(holding(vec![PodFacts { has_empty_dir: true, ..holder("web", true) }]));
    assert_eq!(one(&policy, 1, &node).actions, []);
    policy.pod_deletion.delete_empty_dir = true;
    assert_eq!(one(&policy, 1, &node).actions.len(), 1);
}

#[test]
fn without_auto_upgrade_nothing_begins_and_what_has_its_former_driver_is_given_back() {
    let policy = UpgradePolicy::default();
    assert_eq!(one(&policy, 1, &outdated("a")).state, None);
    let mut node = outdated("a");
    node.cordon = Cordon::Ours;
    for state in [State::CordonRequired, State::PodDeletionRequired, State::DrainRequired] {
        node.state = Some(state);
        let decision = one(&policy, 1, &node);
        assert_eq!(
            (decision.state, &decision.actions[..]),
            (Some(State::UpgradeRequired), &[Action::Uncordon][..])
        );
    }
    node.state = Some(State::PodRestartRequired);
    assert_eq!(one(&policy, 1, &node).actions, [Action::Restart("driver-x".to_owned())], "it is finished");
}

#[test]
fn a_node_that_failed_is_tried_again_with_another_revision_only() {
    let mut node = outdated("a");
    node.state = Some(State::UpgradeFailed);
    node.failed_revision = Some("new".to_owned());
    node.reason = "why".to_owned();
    let decision = one(&automatic(), 1, &node);
    assert_eq!((decision.state, decision.reason.as_str()), (Some(State::UpgradeFailed), "why"));
    node.failed_revision = Some("earlier".to_owned());
    assert_eq!(one(&automatic(), 1, &node).state, Some(State::CordonRequired));
}

#[test]
fn limits_are_of_nodes_with_a_driver_and_at_least_one() {
    let nodes: Vec<NodeFacts> = (0..10).map(|number| outdated(&number.to_string())).collect();
    let begun = |parallel: u32, unavailable: IntOrString, nodes: &[NodeFacts]| {
        let policy =
            UpgradePolicy { max_parallel_upgrades: parallel, max_unavailable: unavailable, ..automatic() };
        let decisions = step(&policy, "new", 1, nodes);
        decisions.iter().filter(|decision| decision.state == Some(State::CordonRequired)).count()
    };
    let percent = |text: &str| IntOrString::String(text.to_owned());
    assert_eq!(begun(1, percent("25%"), &nodes), 1);
    assert_eq!(begun(0, percent("25%"), &nodes), 3);
    assert_eq!(begun(0, percent("100%"), &nodes), 10);
    assert_eq!(begun(0, percent("1%"), &nodes), 1);
    assert_eq!(begun(4, IntOrString::Int(7), &nodes), 4);
    let mut some = nodes;
    some[8].is_ready = false;
    some[9].cordon = Cordon::Foreign;
    // Two are unavailable by themselves; the one that somebody cordoned costs nothing more.
    assert_eq!(begun(0, IntOrString::Int(3), &some), 1);
}

/// What happens between two looks.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Look,
    /// The operator is killed after this many decisions were written, before anything was done.
    LookAndDie(usize),
    Later(i64),
    CordonByHand(usize),
    UncordonByHand(usize),
    ToggleReady(usize),
    ToggleSkip(usize),
    TakeLabel(usize),
    Pause,
    Resume,
    PodsReady,
    NewRevision,
    HolderComes(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let node = 0..6_usize;
    let deed = prop_oneof![
        8 => Just(Deed::Look),
        1 => (0..6_usize).prop_map(Deed::LookAndDie),
        2 => (1..400_i64).prop_map(Deed::Later),
        1 => node.clone().prop_map(Deed::CordonByHand),
        1 => node.clone().prop_map(Deed::UncordonByHand),
        1 => node.clone().prop_map(Deed::ToggleReady),
        1 => node.clone().prop_map(Deed::ToggleSkip),
        1 => node.clone().prop_map(Deed::TakeLabel),
        1 => Just(Deed::Pause),
        1 => Just(Deed::Resume),
        4 => Just(Deed::PodsReady),
        1 => Just(Deed::NewRevision),
        1 => node.prop_map(Deed::HolderComes),
    ];
    proptest::collection::vec(deed, 1..60)
}

struct World {
    policy: UpgradePolicy,
    nodes: Vec<NodeFacts>,
    revision: usize,
    now: i64,
    /// Holders that a disruption budget keeps, for now.
    is_budget_open: bool,
}

impl World {
    fn new(count: usize, parallel: u32, unavailable: i32) -> Self {
        let nodes = (0..count).map(|number| outdated(&format!("n{number}"))).collect();
        let policy = UpgradePolicy {
            max_parallel_upgrades: parallel,
            max_unavailable: IntOrString::Int(unavailable),
            ..automatic()
        };
        Self { policy, nodes, revision: 0, now: 1000, is_budget_open: false }
    }

    fn look(&mut self, written: Option<usize>) {
        let revision = format!("r{}", self.revision);
        let decisions = step(&self.policy, &revision, self.now, &self.nodes);
        assert_eq!(decisions.len(), self.nodes.len());
        for (index, decision) in decisions.iter().enumerate() {
            if written.is_some_and(|most| index >= most) {
                return;
            }
            let before = self.nodes[index].clone();
            let begins = decision.happenings.contains(&Happening::UpgradeStarted);
            assert!(!(begins && (before.is_skipped || !self.policy.auto_upgrade)), "{before:?}");
            write(&mut self.nodes[index], decision);
            self.check_limits(begins && !before.is_unavailable());
            if written.is_none() {
                for action in &decision.actions {
                    self.act(index, action);
                }
            }
        }
    }

    fn check_limits(&self, took_one_more: bool) {
        let at_it = self.nodes.iter().filter(|node| node.state.is_some_and(State::is_in_progress)).count();
        let most = self.policy.max_parallel_upgrades as usize;
        assert!(most == 0 || at_it <= most, "{at_it} nodes are at it");
        let IntOrString::Int(most) = self.policy.max_unavailable else { unreachable!() };
        let unavailable = self.nodes.iter().filter(|node| node.is_unavailable()).count();
        assert!(!took_one_more || unavailable <= most as usize, "{unavailable} nodes are unavailable");
    }

    fn act(&mut self, index: usize, action: &Action) {
        let is_budget_open = self.is_budget_open;
        let node = &mut self.nodes[index];
        match action {
            Action::Cordon => {
                assert_eq!(node.cordon, Cordon::No);
                node.cordon = Cordon::Ours;
            }
            Action::Uncordon => {
                assert_eq!(node.cordon, Cordon::Ours, "somebody else's");
                node.cordon = Cordon::No;
            }
            Action::Evict(pod) if is_budget_open => held(node).retain(|held| held != pod),
            Action::Evict(_) => {}
            Action::Restart(_) => {
                assert!(!node.driver.is_newest(), "the newest pod is not replaced");
                assert_ne!(node.cordon, Cordon::No, "a node in service");
                assert_eq!(*held(node), [], "somebody holds an engine");
                node.driver = pod(true, false);
            }
        }
    }

    fn happens(&mut self, deed: Deed) {
        let count = self.nodes.len();
        let mut change =
            |index: usize, change: &dyn Fn(&mut NodeFacts)| change(&mut self.nodes[index % count]);
        match deed {
            Deed::Look => self.look(None),
            Deed::LookAndDie(written) => self.look(Some(written)),
            Deed::Later(seconds) => self.now += seconds,
            // Writing what is there already makes nobody the owner.
            Deed::CordonByHand(index) => change(index, &|node| {
                if node.cordon == Cordon::No {
                    node.cordon = Cordon::Foreign;
                }
            }),
            Deed::UncordonByHand(index) => change(index, &|node| node.cordon = Cordon::No),
            Deed::ToggleReady(index) => change(index, &|node| node.is_ready = !node.is_ready),
            Deed::ToggleSkip(index) => change(index, &|node| node.is_skipped = !node.is_skipped),
            Deed::TakeLabel(index) => change(index, &|node| node.state = None),
            Deed::Pause => self.policy.auto_upgrade = false,
            Deed::Resume => self.policy.auto_upgrade = true,
            Deed::PodsReady => self.nodes.iter_mut().for_each(|node| {
                if let DriverPod::Present { is_ready, .. } = &mut node.driver {
                    *is_ready = true;
                }
            }),
            Deed::NewRevision => {
                self.revision += 1;
                self.nodes.iter_mut().for_each(|node| {
                    if let DriverPod::Present { is_newest, .. } = &mut node.driver {
                        *is_newest = false;
                    }
                });
            }
            Deed::HolderComes(index) => {
                // Not on a node that takes no pods.
                change(index, &|node| {
                    if node.cordon == Cordon::No {
                        node.pods = Some(holding(vec![holder("web", true)]));
                    }
                });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn limits_hold_nobodys_cordon_is_lifted_and_every_run_comes_to_an_end(
        count in 1..6_usize, parallel in 0..4_u32, unavailable in 1..4_i32, deeds in deeds(),
    ) {
        let mut world = World::new(count, parallel, unavailable);
        for deed in deeds {
            world.happens(deed);
        }
        // People leave it alone, and the world is well.
        world.policy.auto_upgrade = true;
        world.is_budget_open = true;
        for node in &mut world.nodes {
            node.is_ready = true;
        }
        let foreign: BTreeMap<String, Cordon> =
            world.nodes.iter().map(|node| (node.name.clone(), node.cordon)).collect();
        // Others that stay unavailable may leave no room for anything.
        let has_room = foreign.values().filter(|cordon| **cordon == Cordon::Foreign).count() < unavailable as usize;
        for _ in 0..count * 20 {
            world.happens(Deed::Look);
            world.happens(Deed::PodsReady);
            world.happens(Deed::Later(30));
        }
        for node in &world.nodes {
            prop_assert_ne!(node.cordon, Cordon::Ours, "{:?}", node);
            if foreign[&node.name] == Cordon::Foreign {
                prop_assert_eq!(node.cordon, Cordon::Foreign);
            }
            prop_assert!(!node.state.is_some_and(State::is_in_progress), "{:?}", node);
            let is_left = node.is_skipped || !has_room && node.cordon == Cordon::No;
            match node.state {
                Some(State::UpgradeDone) => prop_assert!(node.driver.is_newest_and_ready()),
                Some(State::UpgradeFailed) => {}
                _ => prop_assert!(is_left, "{:?}", node),
            }
        }
    }
}
