//! What follows for every node. Pure: it may be done again, and from any state that an operator was killed in.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::facts::{Cordon, DriverPod, NodeFacts, PodFacts, Pods, State};
use crate::operator::crd::UpgradePolicy;
use crate::operator::events::Happening;

/// How long the new pod may take to be ready, in seconds. It may have packages to install.
const LONGEST_INSTALLATION: i64 = 1800;
/// Pods that are named where they are in the way.
const NAMED: usize = 5;

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make the node unschedulable.
    Cordon,
    /// Make it schedulable.
    Uncordon,
    /// Evict a pod, as its disruption budgets allow.
    Evict(PodFacts),
    /// Delete the driver's pod of this name.
    Restart(String),
}

/// What is decided about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The node.
    pub node: String,
    /// Its state from now on; `None` for no label.
    pub state: Option<State>,
    /// Since when, in seconds of Unix time.
    pub since: i64,
    /// Why.
    pub reason: String,
    /// The revision that failed, where one did.
    pub failed_revision: Option<String>,
    /// What to do once that is written down.
    pub actions: Vec<Action>,
    /// What to tell.
    pub happenings: Vec<Happening>,
}

/// What follows from a state.
enum Next {
    /// Nothing, for a reason.
    Stay(String),
    /// Another state.
    Go(State, String),
    /// No state.
    Forget,
    /// Something is to be done first.
    Act(Vec<Action>, String),
}

/// Decides about all nodes. `revision` is the newest of the driver's DaemonSet, `now` is in seconds of Unix time.
pub fn step(policy: &UpgradePolicy, revision: &str, now: i64, nodes: &[NodeFacts]) -> Vec<Decision> {
    let of_drivers = nodes.iter().filter(|node| node.is_selected).count();
    let mut round = Round {
        policy,
        revision,
        now,
        most_unavailable: most_unavailable(&policy.max_unavailable, of_drivers),
        in_progress: nodes.iter().filter(|node| node.state.is_some_and(State::is_in_progress)).count(),
        unavailable: nodes.iter().filter(|node| node.is_unavailable()).count(),
    };
    nodes.iter().map(|node| round.decide(node)).collect()
}

/// A percentage is rounded up, as Deployments do it for what may be there beyond their number: one node at least.
fn most_unavailable(limit: &IntOrString, nodes: usize) -> usize {
    let limit = match limit {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            nodes.saturating_mul(percent).div_ceil(100)
        }
    };
    limit.max(1)
}

struct Round<'a> {
    policy: &'a UpgradePolicy,
    revision: &'a str,
    now: i64,
    most_unavailable: usize,
    /// Nodes that are at it, those that begin now among them.
    in_progress: usize,
    /// Nodes that are unavailable, for whatever reason.
    unavailable: usize,
}

impl Round<'_> {
    fn decide(&mut self, node: &NodeFacts) -> Decision {
        let mut decision = Decision {
            node: node.name.clone(),
            state: node.state,
            since: node.since,
            reason: node.reason.clone(),
            failed_revision: node.failed_revision.clone(),
            actions: Vec::new(),
            happenings: Vec::new(),
        };
        // What needs nothing to be done follows at once. A state comes once in a round, so that this ends.
        let mut seen = Vec::new();
        loop {
            seen.push(decision.state);
            match self.next(node, &decision) {
                Next::Go(state, reason) if !seen.contains(&Some(state)) => {
                    self.enter(state, reason, &mut decision);
                }
                Next::Go(..) => return decision,
                Next::Forget => {
                    decision.state = None;
                    decision.reason = String::new();
                    decision.failed_revision = None;
                    return decision;
                }
                Next::Stay(reason) => {
                    decision.reason = reason;
                    return decision;
                }
                Next::Act(actions, reason) => {
                    decision.actions = actions;
                    decision.reason = reason;
                    return decision;
                }
            }
        }
    }

    fn enter(&mut self, state: State, reason: String, decision: &mut Decision) {
        let was_in_progress = decision.state.is_some_and(State::is_in_progress);
        match state {
            State::CordonRequired => decision.happenings.push(Happening::UpgradeStarted),
            State::UpgradeDone if was_in_progress => decision.happenings.push(Happening::UpgradeDone),
            State::UpgradeFailed => decision.happenings.push(Happening::UpgradeFailed),
            _ => {}
        }
        match state {
            State::UpgradeFailed => decision.failed_revision = Some(self.revision.to_owned()),
            State::UpgradeRequired | State::UpgradeDone => decision.failed_revision = None,
            _ => {}
        }
        decision.state = Some(state);
        decision.since = self.now;
        decision.reason = reason;
    }

    fn next(&mut self, node: &NodeFacts, decision: &Decision) -> Next {
        let Some(state) = decision.state else { return self.without_state(node) };
        if !node.is_selected {
            return given_back(node, "the node is left out of the driver", Next::Forget);
        }
        if state.is_before_restart() {
            if node.driver.is_newest() {
                return Next::Go(
                    State::ValidationRequired,
                    "the driver's pod was replaced by somebody".to_owned(),
                );
            }
            if let Some(why) = self.stopped(node) {
                return Next::Go(State::UpgradeRequired, why);
            }
        }
        let none = Pods::default();
        let pods = node.pods.as_ref().unwrap_or(&none);
        let is_late = |limit: i64| limit > 0 && self.now.saturating_sub(decision.since) >= limit;
        match state {
            State::UpgradeRequired => self.waiting(node),
            State::CordonRequired => self.cordon(node),
            State::WaitForJobsRequired | State::PodDeletionRequired | State::DrainRequired
                if node.cordon == Cordon::No =>
            {
                Next::Act(vec![Action::Cordon], "the node was made schedulable by somebody".to_owned())
            }
            State::WaitForJobsRequired | State::PodDeletionRequired | State::DrainRequired
                if node.pods.is_none() =>
            {
                Next::Stay("looks at the node's pods".to_owned())
            }
            State::WaitForJobsRequired => {
                let jobs = &self.policy.wait_for_completion;
                match pods.jobs {
                    0 => Next::Go(State::PodDeletionRequired, String::new()),
                    count if is_late(i64::from(jobs.timeout_seconds)) => Next::Go(
                        State::PodDeletionRequired,
                        format!("{count} pods of jobs were not waited for longer"),
                    ),
                    count => Next::Stay(format!("waits for {count} pods of jobs")),
                }
            }
            State::PodDeletionRequired => {
                let policy = &self.policy.pod_deletion;
                let rights = (policy.force, policy.delete_empty_dir, "podDeletion");
                let late = is_late(i64::from(policy.timeout_seconds));
                removal(&pods.holders, rights, late, State::DrainRequired)
            }
            State::DrainRequired if !self.policy.drain.enable => {
                Next::Go(State::PodRestartRequired, String::new())
            }
            State::DrainRequired => {
                let policy = &self.policy.drain;
                let rights = (policy.force, policy.delete_empty_dir, "drain");
                let late = is_late(i64::from(policy.timeout_seconds));
                removal(&pods.others, rights, late, State::PodRestartRequired)
            }
            State::PodRestartRequired => restart(node, is_late(LONGEST_INSTALLATION)),
            State::ValidationRequired => validate(node, is_late(LONGEST_INSTALLATION)),
            State::UncordonRequired => {
                given_back(node, "the driver is ready", Next::Go(State::UpgradeDone, String::new()))
            }
            State::UpgradeDone => match &node.driver {
                DriverPod::Present { is_newest: false, .. } if self.policy.auto_upgrade => {
                    Next::Go(State::UpgradeRequired, String::new())
                }
                _ => given_back(node, "the driver is ready", Next::Stay(String::new())),
            },
            State::UpgradeFailed => self.failed(node, decision),
        }
    }

    fn without_state(&self, node: &NodeFacts) -> Next {
        let is_older = matches!(node.driver, DriverPod::Present { is_newest: false, .. });
        match () {
            // The label was taken away while the node was at it.
            () if node.cordon == Cordon::Ours => {
                Next::Act(vec![Action::Uncordon], "the upgrade was given up".to_owned())
            }
            () if !node.is_selected || !self.policy.auto_upgrade => Next::Forget,
            () if is_older => Next::Go(State::UpgradeRequired, String::new()),
            () if node.driver.is_newest() => Next::Go(State::UpgradeDone, String::new()),
            () => Next::Forget,
        }
    }

    /// Why a node that has its former driver still should not go on.
    fn stopped(&self, node: &NodeFacts) -> Option<String> {
        if !self.policy.auto_upgrade {
            return Some("autoUpgrade is off".to_owned());
        }
        node.is_skipped.then(|| format!("left out by the label {}", super::SKIP))
    }

    /// A node that waits for its turn.
    fn waiting(&mut self, node: &NodeFacts) -> Next {
        if node.cordon == Cordon::Ours {
            return Next::Act(vec![Action::Uncordon], node.reason.clone());
        }
        if let Some(why) = self.stopped(node) {
            return Next::Stay(why);
        }
        match &node.driver {
            DriverPod::Absent => return Next::Forget,
            pod if pod.is_newest() => return Next::Go(State::UpgradeDone, String::new()),
            DriverPod::Present { .. } => {}
        }
        if !node.is_ready {
            return Next::Stay("waits until the node is ready".to_owned());
        }
        let most = usize::try_from(self.policy.max_parallel_upgrades).unwrap_or(usize::MAX);
        if most > 0 && self.in_progress >= most {
            return Next::Stay(format!("waits: maxParallelUpgrades is {most}"));
        }
        if !node.is_unavailable() {
            if self.unavailable >= self.most_unavailable {
                return Next::Stay(format!(
                    "waits: {} nodes are unavailable, and maxUnavailable allows {}",
                    self.unavailable, self.most_unavailable
                ));
            }
            self.unavailable += 1;
        }
        self.in_progress += 1;
        Next::Go(State::CordonRequired, String::new())
    }

    fn cordon(&mut self, node: &NodeFacts) -> Next {
        if node.cordon != Cordon::No {
            return Next::Go(State::WaitForJobsRequired, String::new());
        }
        // Others may have become unavailable since its turn came.
        if node.is_ready && self.unavailable > self.most_unavailable {
            self.unavailable -= 1;
            self.in_progress -= 1;
            return Next::Go(State::UpgradeRequired, "too many other nodes became unavailable".to_owned());
        }
        Next::Act(vec![Action::Cordon], String::new())
    }

    fn failed(&self, node: &NodeFacts, decision: &Decision) -> Next {
        if node.cordon == Cordon::Ours {
            return Next::Act(vec![Action::Uncordon], decision.reason.clone());
        }
        if node.driver.is_newest_and_ready() {
            return Next::Go(State::UpgradeDone, "the driver is ready after all".to_owned());
        }
        if self.policy.auto_upgrade && decision.failed_revision.as_deref() != Some(self.revision) {
            return Next::Go(
                State::UpgradeRequired,
                "there is another revision than the one that failed".to_owned(),
            );
        }
        Next::Stay(decision.reason.clone())
    }
}

/// Makes a node schedulable where that is the operator's to do, then goes on.
fn given_back(node: &NodeFacts, reason: &str, then: Next) -> Next {
    match node.cordon {
        Cordon::Ours => Next::Act(vec![Action::Uncordon], reason.to_owned()),
        Cordon::No | Cordon::Foreign => then,
    }
}

/// Removes pods until none is left. `rights`: whether those may go that nothing makes again, and those that lose data; and
/// where the policy says so.
fn removal(pods: &[PodFacts], rights: (bool, bool, &str), is_late: bool, then: State) -> Next {
    let (force, delete_empty_dir, place) = rights;
    if pods.is_empty() {
        return Next::Go(then, String::new());
    }
    let is_free = |pod: &&PodFacts| (pod.is_managed || force) && (!pod.has_empty_dir || delete_empty_dir);
    let named = |pods: &[&PodFacts]| {
        let names: Vec<String> = pods.iter().take(NAMED).map(|pod| pod.shown()).collect();
        let more = pods.len().saturating_sub(NAMED);
        names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
    };
    let (free, kept): (Vec<&PodFacts>, Vec<&PodFacts>) = pods.iter().partition(is_free);
    let mut reasons = Vec::new();
    if !free.is_empty() {
        reasons.push(format!("pods are being evicted: {}", named(&free)));
    }
    if !kept.is_empty() {
        let words =
            format!("nothing makes these pods again, or they lose an emptyDir, and {place} allows neither");
        reasons.push(format!("{words}: {}", named(&kept)));
    }
    let reason = reasons.join("; ");
    if is_late {
        return Next::Go(State::UpgradeFailed, format!("not in time: {reason}"));
    }
    let evicted = free.into_iter().filter(|pod| !pod.is_leaving).cloned().map(Action::Evict);
    Next::Act(evicted.collect(), reason)
}

fn restart(node: &NodeFacts, is_late: bool) -> Next {
    let holds = node.pods.as_ref().is_some_and(|pods| !pods.holders.is_empty());
    match &node.driver {
        pod if pod.is_newest() => Next::Go(State::ValidationRequired, String::new()),
        _ if is_late => {
            Next::Go(State::UpgradeFailed, "there is no new pod of the driver in time".to_owned())
        }
        DriverPod::Present { is_leaving: false, .. } if node.cordon == Cordon::No => {
            Next::Act(vec![Action::Cordon], "the node was made schedulable by somebody".to_owned())
        }
        DriverPod::Present { is_leaving: false, .. } if node.pods.is_none() => {
            Next::Stay("looks at the node's pods".to_owned())
        }
        // It was schedulable for a while.
        DriverPod::Present { is_leaving: false, .. } if holds => {
            Next::Go(State::PodDeletionRequired, "pods hold engines again".to_owned())
        }
        DriverPod::Present { is_leaving: false, name, .. } => {
            Next::Act(vec![Action::Restart(name.clone())], String::new())
        }
        DriverPod::Present { .. } => Next::Stay("waits for the end of the driver's former pod".to_owned()),
        DriverPod::Absent => Next::Stay("waits for the driver's new pod".to_owned()),
    }
}

fn validate(node: &NodeFacts, is_late: bool) -> Next {
    let DriverPod::Present { failure, .. } = &node.driver else {
        return Next::Go(State::PodRestartRequired, String::new());
    };
    if !node.driver.is_newest() {
        return Next::Go(State::PodRestartRequired, "there is a newer revision".to_owned());
    }
    if node.driver.is_newest_and_ready() {
        return Next::Go(State::UncordonRequired, String::new());
    }
    let waits = match failure {
        Some(said) => format!("the driver's pod failed: {said}"),
        None => "waits until the driver's pod is ready".to_owned(),
    };
    match is_late {
        true => Next::Go(State::UpgradeFailed, format!("not in time: {waits}")),
        false => Next::Stay(waits),
    }
}
