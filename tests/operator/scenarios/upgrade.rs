//! Drivers are upgraded node by node. The scenario plays kubelets and the controller of DaemonSets.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::kit::{DRIVER, HPRE, eventually};
use crate::world::World;

const STATE: &str = "openfuyao.com/kae-driver-upgrade-state";
const REASON: &str = "openfuyao.com/kae-driver-upgrade-reason";
const HASH: &str = "controller-revision-hash";

/// A cluster whose nodes have the driver of an older revision.
struct Fleet<'a> {
    world: &'a World,
    nodes: Vec<&'static str>,
}

impl<'a> Fleet<'a> {
    fn new(world: &'a World, nodes: &[&'static str], upgrades: Value) -> Self {
        for name in nodes {
            world.create_node(name, &[(HPRE, "true")]);
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "x",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
            let api: Api<Node> = Api::all(world.client.clone());
            world.wait(api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))).unwrap();
        }
        let mut policy = json!({"driver": {"upgradePolicy": upgrades}});
        policy["driver"]["upgradePolicy"]["autoUpgrade"] = json!(true);
        world.create_policy(policy);
        world.wait_for_sets();
        let fleet = Self { world, nodes: nodes.to_vec() };
        fleet.revise(1, "old");
        for node in nodes {
            fleet.create_driver(node, "old");
        }
        for node in nodes {
            world.wait_for_label(node, STATE, Some("upgrade-done"));
        }
        fleet
    }

    /// What the DaemonSet's controller makes of a change.
    fn revise(&self, number: i64, hash: &str) {
        let set = self.world.set(DRIVER).unwrap();
        let uid = set.uid().unwrap();
        let revision = json!({
            "metadata": {
                "name": format!("driver-{hash}-{}", &uid[..8]),
                "labels": {"app.kubernetes.io/name": DRIVER, (HASH): hash},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": DRIVER, "uid": uid,
                    "controller": true}],
            },
            "revision": number,
            "data": {},
        });
        let revision: ControllerRevision = serde_json::from_value(revision).unwrap();
        self.world.wait(self.world.here().create(&PostParams::default(), &revision)).unwrap();
        // A revision is made because the DaemonSet changed; here, its status does.
        self.world.run_set(DRIVER, 3, i32::try_from(number).unwrap());
    }

    fn create(&self, pod: Value) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let api = self.world.here::<Pod>();
        self.world.wait(api.create(&PostParams::default(), &pod)).unwrap();
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        self.world.wait(api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))).unwrap();
    }

    fn create_driver(&self, node: &str, hash: &str) {
        self.create(json!({
            "metadata": {"name": format!("driver-{node}-{hash}"),
                "labels": {"app.kubernetes.io/name": DRIVER, (HASH): hash}},
            "spec": {"nodeName": node, "containers": [{"name": "hold", "image": "x"}]},
        }));
    }

    /// A pod that holds an engine.
    fn create_holder(&self, name: &str, node: &str, is_managed: bool) {
        let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": true,
            "uid": "00000000-0000-0000-0000-000000000001"}]);
        self.create(json!({
            "metadata": {"name": name, "labels": {"app": "web"},
                "ownerReferences": if is_managed { owners } else { json!([]) }},
            "spec": {"nodeName": node, "containers": [{"name": "web", "image": "x",
                "resources": {"limits": {"openfuyao.com/kae.hpre": "1"}}}]},
        }));
    }

    /// One look of kubelets and the DaemonSet's controller: pods end that were told to, and drivers come.
    fn play(&self) {
        let api = self.world.here::<Pod>();
        let pods = self.world.wait(api.list(&ListParams::default())).unwrap().items;
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            let _ = self.world.wait(api.delete(&pod.name_any(), &now));
        }
        for node in &self.nodes {
            let is_driver = |pod: &&Pod| pod.name_any().starts_with(&format!("driver-{node}-"));
            if !pods.iter().any(|pod| is_driver(&pod)) {
                self.create_driver(node, "new");
            }
        }
    }

    fn has_pod(&self, name: &str) -> bool {
        self.world.wait(self.world.here::<Pod>().get_opt(name)).unwrap().is_some()
    }

    fn node(&self, name: &str) -> Node {
        self.world.wait(Api::<Node>::all(self.world.client.clone()).get(name)).unwrap()
    }

    fn is_cordoned(&self, name: &str) -> bool {
        self.node(name).spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
    }

    /// As `kubectl cordon`, under its name.
    fn cordon(&self, name: &str, unschedulable: bool) {
        let manager =
            PatchParams { field_manager: Some("kubectl-cordon".to_owned()), ..PatchParams::default() };
        let patch = Patch::Strategic(json!({"spec": {"unschedulable": unschedulable}}));
        let api: Api<Node> = Api::all(self.world.client.clone());
        self.world.wait(api.patch(name, &manager, &patch)).unwrap();
    }

    fn wait_for(&self, node: &str, state: &str) {
        eventually(&format!("{node} is {state}"), || {
            self.play();
            (self.world.label(node, STATE).as_deref() == Some(state)).then_some(())
        });
    }

    fn wait_for_reason(&self, node: &str, words: &str) {
        eventually(&format!("{node} says {words}"), || {
            let reason = self.node(node).annotations().get(REASON).cloned()?;
            reason.contains(words).then_some(())
        });
    }

    /// A budget of the pods `app=web`, which its controller says allows so many to go.
    fn budget(&self, allowed: i32) {
        let api = self.world.here::<PodDisruptionBudget>();
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        });
        let manager = PatchParams::apply("test").force();
        let budget = self.world.wait(api.patch("web", &manager, &Patch::Apply(budget))).unwrap();
        let status = json!({"status": {"observedGeneration": budget.metadata.generation, "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 1 + allowed}});
        self.world.wait(api.patch_status("web", &PatchParams::default(), &Patch::Merge(status))).unwrap();
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        let api = self.world.here::<PodDisruptionBudget>();
        let _ = self.world.wait(api.delete("web", &DeleteParams::default()));
    }
}

pub(crate) fn a_new_driver_goes_from_node_to_node_as_budgets_allow(world: &World) {
    let _operator = world.operator(&[]);
    let fleet = Fleet::new(world, &["a", "b"], json!({}));
    fleet.create_holder("web-1", "a", true);
    fleet.budget(0);
    fleet.revise(2, "new");
    fleet.wait_for("a", "pod-deletion-required");
    assert!(fleet.is_cordoned("a"));
    fleet.wait_for_reason("a", "web-1");
    assert_eq!(world.label("b", STATE).as_deref(), Some("upgrade-required"), "one at a time");
    assert!(!fleet.is_cordoned("b"));
    let upgrade = eventually("the status tells", || {
        let upgrade = world.policy()?.status?.upgrade?;
        (upgrade.in_progress == 1 && upgrade.pending == 1).then_some(upgrade)
    });
    assert_eq!(upgrade.nodes[0].name, "a");
    assert!(fleet.has_pod("web-1") && fleet.has_pod("driver-a-old"), "the budget is honoured");
    fleet.budget(1);
    fleet.wait_for("a", "upgrade-done");
    assert!(!fleet.is_cordoned("a") && !fleet.has_pod("web-1") && fleet.has_pod("driver-a-new"));
    fleet.wait_for("b", "upgrade-done");
    assert!(!fleet.is_cordoned("b") && fleet.has_pod("driver-b-new"));
    for node in ["a", "b"] {
        world.wait_for_event(node, "UpgradeStarted");
        world.wait_for_event(node, "UpgradeDone");
    }
}

pub(crate) fn a_node_that_somebody_else_cordoned_stays_cordoned(world: &World) {
    let operator = world.operator(&[]);
    let upgrades = json!({"maxParallelUpgrades": 0, "maxUnavailable": "100%"});
    let fleet = Fleet::new(world, &["before", "meanwhile", "ours"], upgrades);
    fleet.cordon("before", true);
    fleet.create_holder("web-1", "meanwhile", true);
    fleet.budget(0);
    fleet.revise(2, "new");
    fleet.wait_for("before", "upgrade-done");
    fleet.wait_for("ours", "upgrade-done");
    fleet.wait_for("meanwhile", "pod-deletion-required");
    // While nobody looks, so that it is not cordoned again in between.
    assert!(operator.stop());
    assert!(fleet.is_cordoned("meanwhile"));
    fleet.cordon("meanwhile", false);
    fleet.cordon("meanwhile", true);
    fleet.budget(1);
    let _operator = world.operator(&[]);
    fleet.wait_for("meanwhile", "upgrade-done");
    assert!(fleet.is_cordoned("before") && fleet.is_cordoned("meanwhile"));
    assert!(!fleet.is_cordoned("ours"));
}

pub(crate) fn a_node_that_fails_is_given_back_and_stops_no_other(world: &World) {
    let _operator = world.operator(&[]);
    let fleet = Fleet::new(world, &["a", "b"], json!({"podDeletion": {"timeoutSeconds": 1}}));
    fleet.create_holder("bare", "a", false);
    fleet.revise(2, "new");
    fleet.wait_for("a", "upgrade-failed");
    let note = world.wait_for_event("a", "UpgradeFailed");
    assert!(note.contains("kae/bare"), "{note}");
    eventually("it is schedulable", || (!fleet.is_cordoned("a")).then_some(()));
    assert!(fleet.has_pod("bare") && fleet.has_pod("driver-a-old"));
    fleet.wait_for("b", "upgrade-done");
    // Somebody sees to it by hand.
    let api = world.here::<Pod>();
    world.wait(api.delete("driver-a-old", &DeleteParams::default())).unwrap();
    fleet.wait_for("a", "upgrade-done");
}

pub(crate) fn a_policy_that_is_deleted_meanwhile_gives_nodes_back(world: &World) {
    let _operator = world.operator(&[]);
    let fleet = Fleet::new(world, &["a"], json!({}));
    fleet.create_holder("web-1", "a", true);
    fleet.budget(0);
    fleet.revise(2, "new");
    fleet.wait_for("a", "pod-deletion-required");
    assert!(fleet.is_cordoned("a"));
    world.delete_policy();
    world.wait_for_nothing();
    assert!(!fleet.is_cordoned("a"));
}
