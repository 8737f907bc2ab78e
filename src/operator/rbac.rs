//! What the operator may do: exactly what it does. The chart's roles are tested against this, and this against what an API
//! server has seen.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// A rule, in Rust's constants.
struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

/// Cluster-wide.
const CLUSTER: &[Rule] = &[
    Rule { group: "device.openfuyao.com", resources: &["kaepolicies"], verbs: &["list", "watch", "patch"] },
    Rule { group: "device.openfuyao.com", resources: &["kaepolicies/status"], verbs: &["patch"] },
    Rule { group: "", resources: &["nodes"], verbs: &["list", "watch", "patch"] },
    // Of nodes whose driver is upgraded: which pods hold engines, and that they go.
    Rule { group: "", resources: &["pods"], verbs: &["list"] },
    Rule { group: "", resources: &["pods/eviction"], verbs: &["create"] },
    // Of its own namespace only; a role in the namespace cannot give it.
    Rule { group: "", resources: &["namespaces"], verbs: &["get", "patch"] },
    Rule { group: "events.k8s.io", resources: &["events"], verbs: &["create", "patch"] },
    Rule {
        group: "nfd.k8s-sigs.io",
        resources: &["nodefeaturerules"],
        verbs: &["create", "patch", "delete"],
    },
];

/// In its own namespace.
const NAMESPACE: &[Rule] = &[
    Rule {
        group: "apps",
        resources: &["daemonsets"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    Rule {
        group: "",
        resources: &["configmaps"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    Rule { group: "", resources: &["serviceaccounts"], verbs: &["create", "patch", "delete"] },
    Rule { group: "apps", resources: &["controllerrevisions"], verbs: &["list"] },
    // A pod of the driver that is older is deleted, so that its DaemonSet makes a new one.
    Rule { group: "", resources: &["pods"], verbs: &["list", "watch", "delete"] },
    Rule { group: "coordination.k8s.io", resources: &["leases"], verbs: &["get", "create", "update"] },
];

/// Of the hooks of an installation: `crds apply`, `crds delete` and `policy delete`, cluster-wide.
const HOOKS: &[Rule] = &[
    Rule {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        verbs: &["get", "create", "patch", "delete"],
    },
    Rule { group: "device.openfuyao.com", resources: &["kaepolicies"], verbs: &["get", "delete"] },
];

/// The rules of the ClusterRole of an installation's hooks.
pub fn hook_rules() -> Vec<PolicyRule> {
    HOOKS.iter().map(rule).collect()
}

/// The rules of the operator's ClusterRole.
pub fn cluster_rules() -> Vec<PolicyRule> {
    CLUSTER.iter().map(rule).collect()
}

/// The rules of the operator's Role, in its own namespace.
pub fn namespace_rules() -> Vec<PolicyRule> {
    NAMESPACE.iter().map(rule).collect()
}

fn rule(rule: &Rule) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(&[rule.group])),
        resources: Some(owned(rule.resources)),
        verbs: owned(rule.verbs),
        ..PolicyRule::default()
    }
}
