//! A policy goes, and what belongs to it.

use kube::ResourceExt as _;
use serde_json::json;

use crate::api_server::{ADMIN, HOOKS};
use crate::kit::{CLEANUP, DEPLOY_DRIVER, DEPLOY_PLUGIN, DRIVER, HPRE, PLUGIN, PRESENT, eventually};
use crate::world::World;

pub(crate) fn a_deleted_policy_leaves_nothing(world: &World) {
    let _operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_node("opted-out", &[(HPRE, "true"), (DEPLOY_PLUGIN, "false")]);
    world.create_policy(json!({"driver": {"enabledCleanup": true}, "psa": {"enabled": true}}));
    world.wait_for_sets();
    world.wait_for_label("opted-out", DEPLOY_DRIVER, Some("true"));
    world.wait_for_event("opted-out", "OptOutHonoured");
    let mut hook = world.operator_command(HOOKS, world.server.port);
    let mut hook = hook.args(["policy", "delete", "--timeout=15"]).spawn().unwrap();
    // First the plugin, then the driver, which is cleaned up while the nodes still are known.
    eventually("the driver is being removed from the nodes", || world.set(CLEANUP).map(drop));
    eventually("the driver's DaemonSet has gone for that", || world.set(DRIVER).is_none().then_some(()));
    assert!(world.set(PLUGIN).is_none());
    assert_eq!(world.label("engine", DEPLOY_DRIVER).as_deref(), Some("true"));
    world.wait_for_condition("Ready", "False", "Deleting");
    assert!(hook.try_wait().unwrap().is_none(), "the hook waits");
    world.run_set(CLEANUP, 2, 1);
    world.run_cleanup(2);
    world.wait_for_nothing();
    assert!(hook.wait().unwrap().success());
    // What the user wrote is the user's.
    assert_eq!(world.label("opted-out", DEPLOY_PLUGIN).as_deref(), Some("false"));
}

pub(crate) fn a_driver_that_is_not_wanted_any_more_is_removed_from_the_nodes(world: &World) {
    let operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({"driver": {"enabledCleanup": true}}));
    world.wait_for_sets();
    world.create_driver_pod("driver-1", "engine");
    world.run_set(DRIVER, 1, 1);
    world.wait_for_condition("DriverReady", "True", "Reconciled");
    world.edit(json!({"driver": {"enabled": false}}));
    eventually("the driver is being removed from the nodes", || world.set(CLEANUP).map(drop));
    eventually("the driver's DaemonSet has gone for that", || world.set(DRIVER).is_none().then_some(()));
    // Its pods have not; two at the same node would work against each other.
    let is_held = || world.pod_of(CLEANUP).unwrap().to_string().contains("cleanup-held");
    assert!(is_held());
    world.run_set(CLEANUP, 0, 0);
    // An operator that comes later goes on with it.
    assert!(operator.stop());
    let _operator = world.operator(&[]);
    world.wait_for_condition("DriverReady", "False", "Deleting");
    assert_eq!(world.label("engine", DEPLOY_DRIVER).as_deref(), Some("true"));
    assert!(is_held());
    world.delete_pod("driver-1");
    eventually("it may begin", || (!is_held()).then_some(()));
    world.run_cleanup(1);
    world.wait_for_label("engine", DEPLOY_DRIVER, None);
    assert_eq!(world.label("engine", DEPLOY_PLUGIN).as_deref(), Some("true"));
    world.wait_for_condition("DriverReady", "False", "Disabled");
    assert!(world.set(PLUGIN).is_some() && world.set(DRIVER).is_none());
}

pub(crate) fn a_removal_that_does_not_end_is_given_up_and_told(world: &World) {
    let _operator = world.operator(&["--cleanup-deadline=1"]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({"driver": {"enabledCleanup": true}}));
    world.wait_for_sets();
    world.delete_policy();
    eventually("the driver is being removed from the nodes", || world.set(CLEANUP).map(drop));
    world.run_set(CLEANUP, 3, 1);
    world.wait_for_nothing();
    let note = world.wait_for_event("kae-policy", "DriverCleanupIncomplete");
    assert!(note.starts_with("the driver was removed from 1 of 3 nodes within 1 s"), "{note}");
}

pub(crate) fn without_the_operator_one_command_removes_its_traces(world: &World) {
    let operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({"psa": {"enabled": true}}));
    world.wait_for_sets();
    world.wait_for_label("engine", PRESENT, Some("true"));
    assert!(operator.stop());
    world.delete_policy();
    assert_eq!(world.policy().unwrap().finalizers().len(), 1, "held for ever");
    let delete = world
        .operator_command(ADMIN, world.server.port)
        .args(["policy", "delete", "--timeout=1"])
        .output()
        .unwrap();
    assert_eq!(delete.status.code(), Some(1));
    let said = String::from_utf8_lossy(&delete.stderr).into_owned();
    assert!(said.contains("is still there after 1 s") && said.contains("policy release"), "{said}");
    let release =
        world.operator_command(ADMIN, world.server.port).args(["policy", "release"]).output().unwrap();
    assert!(release.status.success(), "{}", String::from_utf8_lossy(&release.stderr));
    world.wait_for_nothing();
    // Nothing to be done is done.
    let release =
        world.operator_command(ADMIN, world.server.port).args(["policy", "release"]).status().unwrap();
    assert!(release.success());
}

pub(crate) fn the_definition_goes_and_comes_with_the_hooks(world: &World) {
    world.create_policy(json!({}));
    world.hook(&["crds", "delete"]);
    eventually("the definition is gone", || world.try_policy("any", &json!({}), true).err());
    // The hook of an uninstall finds nothing to wait for.
    world.hook(&["policy", "delete", "--timeout=5"]);
    let operator = world.operator(&["--http-addr=127.0.0.1:0"]);
    eventually("the operator says what it misses", || {
        operator.log().contains("cannot watch policies").then_some(())
    });
    world.hook(&["crds", "apply"]);
    world.create_policy(json!({}));
    world.wait_for_sets();
}
