//! A policy comes, and the cluster follows.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use pcidp::operator::crd::State;
use serde_json::{Value, json};

use crate::kit::{DEPLOY_DRIVER, DEPLOY_PLUGIN, DRIVER, FINALIZER, HPRE, PLUGIN, PRESENT, SEC, eventually};
use crate::world::World;

pub(crate) fn a_policy_brings_rule_labels_config_and_both_daemon_sets(world: &World) {
    let operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true"), ("feature.node.kubernetes.io/cpu-model.id", "1")]);
    world.create_node("plain", &[]);
    world.create_policy(json!({"psa": {"enabled": true}}));
    world.wait_for_sets();
    for key in [PRESENT, DEPLOY_DRIVER, DEPLOY_PLUGIN] {
        world.wait_for_label("engine", key, Some("true"));
        assert_eq!(world.label("plain", key), None);
    }
    let rule = world.wait(world.rules().get("openfuyao-kae")).unwrap();
    assert_eq!(rule.data["spec"]["rules"].as_array().unwrap().len(), 3);
    let config = world.wait(world.here::<ConfigMap>().get("kae-device-plugin-config")).unwrap();
    let pools: Value = serde_json::from_str(&config.data.unwrap()["config.json"]).unwrap();
    assert_eq!(pools["resourceList"][0]["resourceName"], "kae.hpre");
    assert_eq!(pools["resourceList"].as_array().unwrap().len(), 1);
    let policy = world.policy().unwrap();
    assert_eq!(policy.finalizers(), [FINALIZER]);
    for set in [DRIVER, PLUGIN] {
        let owners = world.set(set).unwrap().metadata.owner_references.unwrap();
        assert_eq!(owners[0].uid, policy.uid().unwrap());
    }

    world.wait_for_condition("Ready", "False", "OperandNotReady");
    world.run_set(DRIVER, 1, 1);
    world.run_set(PLUGIN, 1, 0);
    world.wait_for_condition("DriverReady", "True", "Reconciled");
    let message = world.wait_for_condition("DevicePluginReady", "False", "OperandNotReady");
    assert_eq!(message, "the device plugin is ready on 0 of 1 nodes");
    world.run_set(PLUGIN, 1, 1);
    world.wait_for_condition("Ready", "True", "Reconciled");
    let status = world.policy().unwrap().status.unwrap();
    assert_eq!(status.state, Some(State::Ready));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!((status.nodes.kae, status.nodes.hpre, status.nodes.opted_out), (1, 1, 0));
    let names: Vec<&str> = status.components.iter().map(|component| component.name.as_str()).collect();
    assert_eq!(names, [DRIVER, PLUGIN]);
    assert_eq!(status.components[0].image, "localhost/openfuyao/kae-driver-installer:latest");
    world.wait_for_event("engine", "DeviceOnline");

    world.delete_policy();
    world.wait_for_nothing();
    assert!(operator.stop(), "SIGTERM ends it well");
}

pub(crate) fn no_node_with_engines_is_no_fault_but_no_discovery_is(world: &World) {
    let _operator = world.operator(&[]);
    world.create_node("plain", &[]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    world.run_set(DRIVER, 0, 0);
    world.run_set(PLUGIN, 0, 0);
    world.wait_for_condition("Ready", "False", "NFDLabelsMissing");
    world.set_label("plain", "feature.node.kubernetes.io/cpu-model.id", Some("1"));
    world.wait_for_condition("Ready", "True", "NoKAENodes");
    world.wait_for_condition("NFDAvailable", "True", "NFDLabelsSeen");
}

pub(crate) fn a_second_policy_is_ignored(world: &World) {
    let _operator = world.operator(&[]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    world.try_policy("another", &json!({"driver": {"enabled": false}}), false).unwrap();
    eventually("the second policy is ignored", || {
        let policy = world.wait(world.policies().get("another")).unwrap();
        (policy.status?.state? == State::Ignored).then_some(())
    });
    world.wait_for_event("another", "DuplicatePolicy");
    assert!(world.set(DRIVER).is_some());
    // It goes without having been held.
    world.wait(world.policies().delete("another", &DeleteParams::default())).unwrap();
    assert!(world.wait(world.policies().get_opt("another")).unwrap().is_none());
}

pub(crate) fn without_engines_to_manage_everything_is_withdrawn(world: &World) {
    let _operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true"), (SEC, "true")]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("true"));
    world.edit(json!({"operator": {"enabledHPRE": false}}));
    world.wait_for_label("engine", PRESENT, None);
    eventually("the DaemonSets are gone", || {
        (world.set(DRIVER).is_none() && world.set(PLUGIN).is_none()).then_some(())
    });
    world.wait_for_condition("Ready", "True", "Disabled");
    assert_eq!(world.policy().unwrap().status.unwrap().state, Some(State::Disabled));
    assert_eq!(world.label("engine", DEPLOY_PLUGIN), None);
    world.edit(json!({"operator": {"enabledSEC": true}}));
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("true"));
    world.wait_for_sets();
}
