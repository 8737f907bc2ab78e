//! A policy, or what the operator made, is edited while it runs.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::kit::{DRIVER, HPRE, PLUGIN, eventually};
use crate::world::{NAMESPACE, World};

fn config(world: &World) -> String {
    let map = world.wait(world.here::<ConfigMap>().get_opt("kae-device-plugin-config")).unwrap();
    map.and_then(|map| map.data?.remove("config.json")).unwrap_or_default()
}

pub(crate) fn a_live_edit_is_followed(world: &World) {
    let _operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    world.edit(json!({"operator": {"enabledSEC": true}}));
    eventually("the config has a pool of SEC engines", || config(world).contains("kae.sec").then_some(()));
    eventually("the installer is told of SEC engines", || {
        let pod = world.pod_of(DRIVER)?.to_string();
        pod.contains("--types=hpre,sec").then_some(())
    });
    world.edit(json!({"driver": {"enabled": false}}));
    eventually("the driver's DaemonSet is gone", || world.set(DRIVER).is_none().then_some(()));
    world.wait_for_label("engine", "openfuyao.com/kae.deploy.driver", None);
    eventually("the plugin looks at the node's own driver", || {
        let pod = world.pod_of(PLUGIN)?.to_string();
        pod.contains("\"check\"").then_some(())
    });
    world.wait_for_event("kae-policy", "OperandRemoved");
    world.wait_for_condition("DriverReady", "False", "Disabled");
    world.run_set(PLUGIN, 1, 1);
    world.wait_for_condition("DevicePluginReady", "True", "Reconciled");
    world.edit(json!({"driver": {"enabled": true}, "devicePlugin": {"enabled": false}}));
    eventually("the plugin is gone, and the driver is back", || {
        (world.set(PLUGIN).is_none() && world.set(DRIVER).is_some()).then_some(())
    });
    eventually("its config is gone, too", || config(world).is_empty().then_some(()));
    world.wait_for_label("engine", "openfuyao.com/kae.deploy.device-plugin", None);
}

/// Rows of the values table and of the definition that reach a pod: what is written, whose pod, where, and what stands there.
fn rows() -> Vec<(Value, &'static str, &'static str, Value)> {
    let (first, main) = ("/spec/initContainers/0", "/spec/containers/0");
    let at = |container: &str, field: &str| -> &'static str { format!("{container}/{field}").leak() };
    vec![
        (json!({"daemonSets": {"labels": {"team": "a"}}}), DRIVER, "/metadata/labels/team", json!("a")),
        (json!({"daemonSets": {"labels": {"team": "b"}}}), PLUGIN, "/metadata/labels/team", json!("b")),
        (json!({"daemonSets": {"annotations": {"x": "y"}}}), PLUGIN, "/metadata/annotations/x", json!("y")),
        (
            json!({"daemonSets": {"tolerations": [{"operator": "Exists"}]}}),
            DRIVER,
            "/spec/tolerations",
            json!([{"operator": "Exists"}]),
        ),
        (json!({"daemonSets": {"tolerations": []}}), PLUGIN, "/spec/tolerations", Value::Null),
        (
            json!({"daemonSets": {"priorityClassName": "high"}}),
            DRIVER,
            "/spec/priorityClassName",
            json!("high"),
        ),
        (
            json!({"daemonSets": {"imagePullSecrets": [{"name": "s"}]}}),
            PLUGIN,
            "/spec/imagePullSecrets/0/name",
            json!("s"),
        ),
        (
            json!({"driver": {"repository": "r.example/a", "image": "d", "version": "v1"}}),
            DRIVER,
            at(first, "image"),
            json!("r.example/a/d:v1"),
        ),
        (
            json!({"driver": {"repository": "", "image": "r.example/whole:v2", "version": ""}}),
            DRIVER,
            at(main, "image"),
            json!("r.example/whole:v2"),
        ),
        (
            json!({"driver": {"imagePullPolicy": "Always"}}),
            DRIVER,
            at(main, "imagePullPolicy"),
            json!("Always"),
        ),
        (json!({"driver": {"installPolicy": "Always"}}), DRIVER, at(first, "env/0/value"), json!("Always")),
        (
            json!({"driver": {"env": [{"name": "INSTALL_POLICY", "value": "IfNotPresent"}]}}),
            DRIVER,
            at(first, "env/0/value"),
            json!("IfNotPresent"),
        ),
        (
            json!({"driver": {"env": [{"name": "KEYINSTALL_POLICY", "value": "Always"}]}}),
            DRIVER,
            at(first, "env/0"),
            json!({"name": "INSTALL_POLICY", "value": "Always"}),
        ),
        (json!({"driver": {"uacceMode": "SVA"}}), DRIVER, at(first, "command/6"), json!("--uacce-mode=sva")),
        (json!({"driver": {"pfQueueNum": 256}}), DRIVER, at(first, "command/7"), json!("--pf-queues=256")),
        (json!({"driver": {"vfs": {"hpre": 2}}}), DRIVER, at(first, "command/8"), json!("--vfs=hpre=2")),
        (
            json!({"driver": {"devicePermissions": {"mode": "0660", "group": "kae"}}}),
            DRIVER,
            at(first, "command/10"),
            json!("--device-group=kae"),
        ),
        (
            json!({"driver": {"resources": {"limits": {"memory": "1Gi"}}}}),
            DRIVER,
            at(first, "resources/limits/memory"),
            json!("1Gi"),
        ),
        (
            json!({"driver": {"startupProbe": {"failureThreshold": 7}}}),
            DRIVER,
            at(main, "startupProbe/failureThreshold"),
            json!(7),
        ),
        (
            json!({"devicePlugin": {"repository": "r.example/b", "image": "p", "version": "v3"}}),
            PLUGIN,
            at(main, "image"),
            json!("r.example/b/p:v3"),
        ),
        (
            json!({"devicePlugin": {"imagePullPolicy": "Never"}}),
            PLUGIN,
            at(main, "imagePullPolicy"),
            json!("Never"),
        ),
        (
            json!({"devicePlugin": {"env": [{"name": "A", "value": "b"}]}}),
            PLUGIN,
            at(main, "env/0"),
            json!({"name": "A", "value": "b"}),
        ),
        (json!({"devicePlugin": {"args": ["--use-cdi"]}}), PLUGIN, at(main, "args/4"), json!("--use-cdi")),
        (
            json!({"devicePlugin": {"resources": {"limits": {"cpu": "2"}}}}),
            PLUGIN,
            at(main, "resources/limits/cpu"),
            json!("2"),
        ),
        (
            json!({"hostPaths": {"kubeletRootDir": "/data/kubelet"}}),
            PLUGIN,
            at(main, "volumeMounts/2/mountPath"),
            json!("/data/kubelet/pod-resources"),
        ),
        (
            json!({"hostPaths": {"rootFS": "/sysroot"}}),
            DRIVER,
            "/spec/volumes/0/hostPath/path",
            json!("/sysroot"),
        ),
        (
            json!({"devicePlugin": {"configMapRef": {"name": "mine"}}}),
            PLUGIN,
            "/spec/volumes/4/configMap/name",
            json!("mine"),
        ),
    ]
}

pub(crate) fn every_value_has_an_effect(world: &World) {
    let _operator = world.operator(&[]);
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    for (spec, set, pointer, expected) in rows() {
        world.edit(spec.clone());
        eventually(&format!("{spec} makes {pointer} of {set} {expected}"), || {
            let pod = world.pod_of(set)?;
            (*pod.pointer(pointer).unwrap_or(&Value::Null) == expected).then_some(())
        });
    }
    let strategy = || serde_json::to_value(world.set(PLUGIN)?.spec?.update_strategy).ok();
    world.edit(json!({"daemonSets": {"rollingUpdate": {"maxUnavailable": "10%"}}}));
    eventually("maxUnavailable is followed", || {
        (strategy()?["rollingUpdate"]["maxUnavailable"] == "10%").then_some(())
    });
    world.edit(json!({"daemonSets": {"updateStrategy": "OnDelete"}}));
    eventually("the strategy is followed", || (strategy()?["type"] == "OnDelete").then_some(()));
    let driver = world.set(DRIVER).unwrap().spec.unwrap().update_strategy.unwrap();
    assert_eq!(driver.type_.as_deref(), Some("OnDelete"));
    for (spec, words) in [
        (json!({"devicePlugin": {"configMapRef": null, "replicas": 4}}), "\"replicas\": 4"),
        (json!({"devicePlugin": {"uacceView": "host"}}), "\"uacceView\": \"host\""),
        (json!({"operator": {"enabledZIP": true}}), "kae.zip"),
        (
            json!({"devicePlugin": {"config": [{"resourceName": "own", "deviceType": "accelerator"}]}}),
            "\"own\"",
        ),
    ] {
        world.edit(spec);
        eventually(words, || config(world).contains(words).then_some(()));
    }
    let namespace = || world.wait(Api::<Namespace>::all(world.client.clone()).get(NAMESPACE)).unwrap();
    let enforced = || namespace().metadata.labels?.remove("pod-security.kubernetes.io/enforce");
    world.edit(json!({"psa": {"enabled": true}}));
    eventually("the namespace is labelled", || (enforced()? == "privileged").then_some(()));
    world.edit(json!({"psa": {"enabled": false}}));
    eventually("the namespace is as it was", || enforced().is_none().then_some(()));
}

pub(crate) fn a_config_that_the_plugin_would_refuse_changes_nothing(world: &World) {
    let _operator = world.operator(&[]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    eventually("the config is there", || config(world).contains("kae.hpre").then_some(()));
    let before = config(world);
    world.edit(
        json!({"devicePlugin": {"config": [{"resourceName": "a", "selectors": {"vendors": ["intel"]}}]}}),
    );
    let message = world.wait_for_condition("DevicePluginReady", "False", "InvalidConfig");
    assert!(message.contains("config.json:") && message.contains("intel"), "{message}");
    world.wait_for_condition("Ready", "False", "InvalidConfig");
    world.wait_for_condition("Degraded", "True", "InvalidConfig");
    assert_eq!(config(world), before);
    assert!(world.set(DRIVER).is_some());
}

pub(crate) fn whoever_changes_a_daemon_set_is_corrected_and_keeps_his_labels(world: &World) {
    let _operator = world.operator(&[]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    let image = |image: &str| json!({"spec": {"containers": [{"name": PLUGIN, "image": image}]}});
    let change = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": PLUGIN, "labels": {"team": "crypto"}},
        "spec": {"template": image("r.example/other:v1")},
    });
    let api = world.here::<DaemonSet>();
    let other = PatchParams::apply("somebody").force();
    world.wait(api.patch(PLUGIN, &other, &Patch::Apply(&change))).unwrap();
    eventually("the image is the policy's again", || {
        let pod = world.pod_of(PLUGIN)?;
        (pod["spec"]["containers"][0]["image"] == "localhost/openfuyao/kae-device-plugin:latest")
            .then_some(())
    });
    assert_eq!(world.set(PLUGIN).unwrap().metadata.labels.unwrap()["team"], "crypto");
    // Even the label by which the operator knows it.
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}});
    world.wait(api.patch(PLUGIN, &PatchParams::default(), &Patch::Merge(label))).unwrap();
    eventually("the label is the operator's again", || {
        (world.set(PLUGIN)?.metadata.labels?["app.kubernetes.io/managed-by"] == "kae-operator").then_some(())
    });
    let data = json!({"data": {"config.json": "{}"}});
    let maps = world.here::<ConfigMap>();
    world.wait(maps.patch("kae-device-plugin-config", &PatchParams::default(), &Patch::Merge(data))).unwrap();
    eventually("the config is the policy's again", || config(world).contains("kae.hpre").then_some(()));
    world.wait(api.delete(PLUGIN, &kube::api::DeleteParams::default())).unwrap();
    world.wait_for_sets();
}
