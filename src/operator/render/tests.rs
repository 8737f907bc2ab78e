use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

fn place() -> Place {
    Place {
        namespace: "kae".to_owned(),
        image: "r.example/kae-operator:v1".to_owned(),
        owner: Some(OwnerReference {
            api_version: "device.openfuyao.com/v1".to_owned(),
            kind: "KAEPolicy".to_owned(),
            name: "kae-policy".to_owned(),
            uid: "00000000-0000-0000-0000-000000000000".to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }),
    }
}

fn policy(spec: Value) -> KaePolicySpec {
    serde_json::from_value(spec).unwrap()
}

/// Every row of the values table that reaches a pod, changed.
fn everything() -> KaePolicySpec {
    policy(json!({
        "operator": {"enabledHPRE": true, "enabledSEC": true, "enabledZIP": true},
        "daemonSets": {
            "labels": {"team": "crypto", NAME: "no"},
            "annotations": {"note": "x"},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "high",
            "updateStrategy": "OnDelete",
            "imagePullSecrets": [{"name": "registry"}],
        },
        "driver": {
            "repository": "r.example/a", "image": "driver", "version": "v2", "imagePullPolicy": "Always",
            "env": [{"name": "KEYINSTALL_POLICY", "value": "Always"}, {"name": "HTTP_PROXY", "value": "http://p.example"}],
            "uacceMode": "NoSVA", "pfQueueNum": 256, "vfs": {"hpre": 3, "zip": 0},
            "devicePermissions": {"mode": "0660", "group": "kae"},
            "resources": {"limits": {"memory": "1Gi"}},
            "startupProbe": {"periodSeconds": 7},
        },
        "devicePlugin": {
            "image": "r.example/plugin@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "env": [{"name": "A", "value": "b"}], "args": ["--use-cdi"], "resources": {"requests": {"cpu": "1"}},
            "configMapRef": {"name": "mine", "key": "pools.json"}, "imagePullPolicy": "Never",
        },
        "hostPaths": {"rootFS": "/sysroot/", "kubeletRootDir": "/data/kubelet/"},
    }))
}

/// Fields that the API does not have would be lost here.
fn is_whole<T: Serialize + DeserializeOwned>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    let mut again = serde_json::to_value(typed).unwrap();
    sort(&mut again);
    let mut object = object.clone();
    sort(&mut object);
    assert_eq!(again, object);
}

fn sort(value: &mut Value) {
    value.sort_all_objects();
}

#[test]
fn objects_of_the_default_policy() {
    let spec = KaePolicySpec::default();
    insta::assert_json_snapshot!("driver", driver(&place(), &spec));
    insta::assert_json_snapshot!("cleanup", cleanup(&place(), &spec, false));
    insta::assert_json_snapshot!("plugin", plugin(&place(), &spec));
    insta::assert_json_snapshot!("rule", node_feature_rule(&place()));
    insta::assert_json_snapshot!("config", config_map(&place(), &config_text(&spec).unwrap()));
    insta::assert_json_snapshot!("service-account", service_account(&place(), DRIVER));
}

#[test]
fn objects_of_a_policy_that_changes_everything() {
    let spec = everything();
    insta::assert_json_snapshot!("driver-of-everything", driver(&place(), &spec));
    insta::assert_json_snapshot!("plugin-of-everything", plugin(&place(), &spec));
    insta::assert_snapshot!("config-of-everything", config_text(&spec).unwrap());
}

#[test]
fn the_plugin_of_a_node_with_its_own_driver_looks_at_that() {
    let spec = policy(json!({"driver": {"enabled": false}}));
    let set = plugin(&place(), &spec);
    insta::assert_json_snapshot!("plugin-without-driver", set["spec"]["template"]["spec"]["initContainers"]);
}

#[test]
fn every_field_is_one_of_the_api() {
    for spec in [KaePolicySpec::default(), everything()] {
        is_whole::<DaemonSet>(&driver(&place(), &spec));
        is_whole::<DaemonSet>(&cleanup(&place(), &spec, true));
        is_whole::<DaemonSet>(&plugin(&place(), &spec));
        is_whole::<ConfigMap>(&config_map(&place(), "{}"));
        is_whole::<ConfigMap>(&memory(&place(), &BTreeMap::from([("a".to_owned(), "b".to_owned())])));
        is_whole::<ServiceAccount>(&service_account(&place(), PLUGIN));
    }
}

#[test]
fn pools_of_the_policy_are_checked_as_the_plugin_would() {
    let own = |pool: Value| config_text(&policy(json!({"devicePlugin": {"config": [pool]}})));
    let good =
        own(json!({"resourceName": "a", "deviceType": "accelerator", "selectors": {"vendors": ["19e5"]}}));
    assert!(good.unwrap().contains("\"a\""));
    let bad = own(json!({"resourceName": "a", "selectors": {"vendors": ["intel"]}})).unwrap_err();
    assert!(bad.to_string().contains("config.json:"), "{bad}");
}

#[test]
fn no_engine_is_a_config_without_pools() {
    let spec = policy(json!({"operator": {"enabledHPRE": false}}));
    assert_eq!(config_text(&spec).unwrap(), "{\n  \"resourceList\": []\n}\n");
}
