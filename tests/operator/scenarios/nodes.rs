//! Nodes come, go, lose their engines, and are opted out.

use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::kit::{DEPLOY_DRIVER, DEPLOY_PLUGIN, DRIVER, HPRE, PLUGIN, PRESENT, eventually, within};
use crate::world::{LIMIT, World};

pub(crate) fn an_opt_out_survives_a_node_that_is_made_again(world: &World) {
    let operator = world.operator(&["--absence-debounce=1"]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({}));
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("true"));
    world.set_label("engine", DEPLOY_DRIVER, Some("false"));
    world.wait_for_event("engine", "OptOutHonoured");
    eventually("it is counted", || (world.policy()?.status?.nodes.opted_out == 1).then_some(()));
    // The engine goes and comes.
    world.set_label("engine", HPRE, None);
    world.wait_for_label("engine", PRESENT, None);
    world.wait_for_event("engine", "DeviceOffline");
    world.set_label("engine", HPRE, Some("true"));
    world.wait_for_label("engine", PRESENT, Some("true"));
    assert_eq!(world.label("engine", DEPLOY_DRIVER).as_deref(), Some("false"));
    assert_eq!(world.label("engine", DEPLOY_PLUGIN).as_deref(), Some("true"));
    // Something resets the labels.
    world.set_label("engine", DEPLOY_DRIVER, None);
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("false"));
    // The node is made again; the operator, too.
    world.delete_node("engine");
    assert!(operator.stop());
    world.create_node("engine", &[(HPRE, "true")]);
    let _operator = world.operator(&[]);
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("false"));
    world.wait_for_label("engine", DEPLOY_PLUGIN, Some("true"));
    // `true` ends it, for good.
    world.set_label("engine", DEPLOY_DRIVER, Some("true"));
    eventually("nothing is remembered", || {
        let node = world.nodes().pop()?;
        (!node.annotations().contains_key("openfuyao.com/kae.user-overrides")).then_some(())
    });
    world.set_label("engine", DEPLOY_DRIVER, None);
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("true"));
}

pub(crate) fn engines_that_are_away_cost_a_node_its_operands_after_a_while(world: &World) {
    let _operator = world.operator(&["--absence-debounce=1"]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_node("foreign", &[(HPRE, "true"), (DEPLOY_DRIVER, "paused-by-me")]);
    world.create_policy(json!({}));
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("true"));
    let since = Instant::now();
    world.set_label("engine", HPRE, None);
    world.set_label("foreign", HPRE, None);
    world.wait_for_label("engine", PRESENT, None);
    let took = since.elapsed();
    assert!((950..3000).contains(&took.as_millis()), "withdrawn after {took:?}");
    assert_eq!(world.label("engine", DEPLOY_DRIVER), None);
    assert_eq!(world.label("engine", DEPLOY_PLUGIN), None);
    world.wait_for_label("foreign", PRESENT, None);
    assert_eq!(world.label("foreign", DEPLOY_DRIVER).as_deref(), Some("paused-by-me"));
    world.wait_for_event("engine", "DeviceOffline");
}

fn driver_pod(world: &World, state: serde_json::Value, ready: &str) {
    let api = world.here::<Pod>();
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": ready}],
        "initContainerStatuses": [{
            "name": "install", "image": "x", "imageID": "x", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": state,
        }],
    }});
    world.wait(api.patch_status("driver-1", &PatchParams::default(), &Patch::Merge(status))).unwrap();
}

pub(crate) fn an_installer_that_fails_is_told_with_its_words(world: &World) {
    let _operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    world.create_driver_pod("driver-1", "engine");
    world.run_set(DRIVER, 1, 0);
    let ended = |said: &str| json!({"terminated": {"exitCode": 1, "message": format!("a line\n{said}\n")}});
    driver_pod(world, ended("no repository has kernel-devel"), "False");
    let message = world.wait_for_condition("DriverReady", "False", "DriverInstallFailed");
    assert_eq!(message, "on 1 nodes, such as engine: no repository has kernel-devel");
    world.wait_for_condition("Degraded", "True", "DriverInstallFailed");
    world.wait_for_event("engine", "DriverInstallFailed");
    // The same again with other words, so that it is told again.
    driver_pod(world, ended("engines are in use"), "False");
    eventually("the new words are in the status", || {
        world.condition("DriverReady")?.2.contains("engines are in use").then_some(())
    });
    driver_pod(world, ended("engines are in use"), "True");
    world.run_set(DRIVER, 1, 1);
    world.wait_for_event("engine", "DriverInstalled");
    world.wait_for_condition("DriverReady", "True", "Reconciled");
    world.wait_for_condition("Degraded", "False", "Reconciled");
}

pub(crate) fn five_hundred_nodes_are_labelled_and_bared_again(world: &World) {
    let names: Vec<String> = (0..500).map(|number| format!("node-{number}")).collect();
    world.create_nodes(&names, &[(HPRE, "true")]);
    let _operator = world.operator(&[]);
    let labelled = || world.nodes().iter().filter(|node| node.labels().contains_key(DEPLOY_DRIVER)).count();
    let started = Instant::now();
    world.create_policy(json!({}));
    within(LIMIT * 2, "all nodes are labelled", || (labelled() == 500).then_some(()));
    let labelling = started.elapsed();
    world.wait_for_sets();
    world.run_set(DRIVER, 500, 500);
    world.run_set(PLUGIN, 500, 500);
    world.wait_for_condition("Ready", "True", "Reconciled");
    let ready = started.elapsed();
    let started = Instant::now();
    world.delete_policy();
    within(LIMIT * 2, "the policy is gone", || world.policy().is_none().then_some(()));
    assert_eq!(world.left(), Vec::<String>::new());
    eprintln!(
        "500 nodes: labelled in {labelling:?}, ready in {ready:?}, bare again in {:?}",
        started.elapsed()
    );
}
