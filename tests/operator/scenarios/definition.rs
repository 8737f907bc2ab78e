//! The definition of KAEPolicy, as the API server takes it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::world::World;

/// `PCIDP_UPDATE=1` writes it again.
pub(crate) fn the_shipped_definition_is_what_the_binary_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deployments/charts/kae-operator/crds/device.openfuyao.com_kaepolicies_crd.yaml");
    let output = Command::new(env!("CARGO_BIN_EXE_kae-operator")).args(["generate", "crd"]).output().unwrap();
    assert!(output.status.success());
    if std::env::var_os("PCIDP_UPDATE").is_some() {
        fs::write(&path, &output.stdout).unwrap();
    }
    assert!(
        fs::read(&path).unwrap_or_default() == output.stdout,
        "{} is old; run this test with PCIDP_UPDATE=1",
        path.display()
    );
}

pub(crate) fn an_empty_policy_gets_the_documented_defaults(world: &World) {
    let policy = world.try_policy("any", &json!({}), true).unwrap();
    let spec = &policy.data["spec"];
    assert_eq!(
        *spec,
        json!({
            "operator": {"enabledHPRE": true, "enabledSEC": false, "enabledZIP": false},
            "daemonSets": {
                "labels": {}, "annotations": {}, "tolerations": [], "priorityClassName": "system-node-critical",
                "updateStrategy": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}, "imagePullSecrets": [],
            },
            "driver": {
                "enabled": true, "enabledCleanup": false, "imagePullPolicy": "IfNotPresent", "env": [],
                "installPolicy": "IfNotPresent", "uacceMode": "Auto", "vfs": {}, "resources": {},
                "devicePermissions": {"mode": "0666", "group": ""},
                "startupProbe": {
                    "initialDelaySeconds": 0, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 150,
                },
                "upgradePolicy": {
                    "autoUpgrade": false, "maxParallelUpgrades": 1, "maxUnavailable": "25%",
                    "waitForCompletion": {"podSelector": "", "timeoutSeconds": 0},
                    "podDeletion": {"force": false, "timeoutSeconds": 300, "deleteEmptyDir": false},
                    "drain": {
                        "enable": false, "force": false, "podSelector": "", "timeoutSeconds": 300,
                        "deleteEmptyDir": false,
                    },
                },
            },
            "devicePlugin": {
                "enabled": true, "imagePullPolicy": "IfNotPresent", "env": [], "args": [], "uacceView": "auto",
            },
            "psa": {"enabled": false},
            "hostPaths": {"rootFS": "/", "kubeletRootDir": "/var/lib/kubelet"},
        })
    );
}

pub(crate) fn a_bad_value_is_refused_and_its_message_says_why(world: &World) {
    let long = "x".repeat(5000);
    let many: Vec<Value> =
        (0..65).map(|number| json!({"name": format!("V{number}"), "value": "x"})).collect();
    let digest = format!("sha256:{}", "0".repeat(63));
    for (spec, why) in [
        (
            json!({"driver": {"env": [{"name": "INSTALL_POLICY", "value": "Never"}]}}),
            "INSTALL_POLICY is IfNotPresent or Always",
        ),
        (
            json!({"driver": {"env": [{"name": "KEYINSTALL_POLICY", "value": ""}]}}),
            "INSTALL_POLICY is IfNotPresent or Always",
        ),
        (
            json!({"driver": {"env": [{"name": "INSTALL_POLICY"}]}}),
            "INSTALL_POLICY is IfNotPresent or Always",
        ),
        (
            json!({"driver": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}}),
            "Duplicate value",
        ),
        (json!({"driver": {"env": many}}), "must have at most 64 items"),
        (json!({"driver": {"repository": "r.example"}}), "write repository and version together"),
        (json!({"driver": {"version": "v1"}}), "write repository and version together"),
        (json!({"driver": {"image": "a b"}}), "should match"),
        (json!({"driver": {"image": ""}}), "at least 1 chars long"),
        (json!({"driver": {"repository": "http://r.example", "version": "v1"}}), "should match"),
        (json!({"driver": {"repository": "r.example", "version": digest}}), "should match"),
        (json!({"driver": {"installPolicy": "always"}}), "Unsupported value"),
        (json!({"driver": {"uacceMode": "2"}}), "Unsupported value"),
        (json!({"driver": {"pfQueueNum": 1}}), "greater than or equal to 2"),
        (json!({"driver": {"pfQueueNum": 1025}}), "less than or equal to 1024"),
        (json!({"driver": {"vfs": {"hpre": 64}}}), "less than or equal to 63"),
        (json!({"driver": {"vfs": {"hpre": -1}}}), "greater than or equal to 0"),
        (json!({"driver": {"devicePermissions": {"mode": "rw"}}}), "should match"),
        (json!({"driver": {"devicePermissions": {"group": "a b; rm"}}}), "should match"),
        (
            json!({"driver": {"upgradePolicy": {"maxUnavailable": "101%"}}}),
            "maxUnavailable is a number from 0 up",
        ),
        (
            json!({"driver": {"upgradePolicy": {"maxUnavailable": -1}}}),
            "maxUnavailable is a number from 0 up",
        ),
        (json!({"driver": {"resources": {"limits": {"memory": "much"}}}}), "should match"),
        (json!({"devicePlugin": {"config": [], "configMapRef": {"name": "a"}}}), "not both"),
        (json!({"devicePlugin": {"configMapRef": {"name": "A_"}}}), "should match"),
        (json!({"devicePlugin": {"replicas": 0}}), "greater than or equal to 1"),
        (json!({"devicePlugin": {"uacceView": "all"}}), "Unsupported value"),
        (json!({"daemonSets": {"labels": {"a b": "c"}}}), "a label's name is letters"),
        (json!({"daemonSets": {"labels": {"a": "b c"}}}), "should match"),
        (json!({"daemonSets": {"annotations": {"a": long}}}), "may not be more than 4096 bytes"),
        (
            json!({"daemonSets": {"rollingUpdate": {"maxUnavailable": 0}}}),
            "maxUnavailable is a number of at least 1",
        ),
        (
            json!({"daemonSets": {"rollingUpdate": {"maxUnavailable": "1"}}}),
            "maxUnavailable is a number of at least 1",
        ),
        (
            json!({"daemonSets": {"rollingUpdate": {"maxUnavailable": "0%"}}}),
            "maxUnavailable is a number of at least 1",
        ),
        (json!({"daemonSets": {"updateStrategy": "Recreate"}}), "Unsupported value"),
        (json!({"daemonSets": {"priorityClassName": "Very High"}}), "should match"),
        (json!({"hostPaths": {"kubeletRootDir": "var/lib/kubelet"}}), "write an absolute path"),
        (json!({"hostPaths": {"kubeletRootDir": "/var/../etc"}}), "write an absolute path"),
        (json!({"hostPaths": {"rootFS": ""}}), "write an absolute path"),
        (json!({"operator": {"enabledHPRE": "yes"}}), "must be of type boolean"),
    ] {
        match world.try_policy("any", &spec, true) {
            Ok(_) => panic!("accepted: {spec}"),
            Err(kube::Error::Api(status)) => {
                assert!(status.message.contains(why), "{spec}: not `{why}` but `{}`", status.message);
            }
            Err(error) => panic!("{spec}: {error}"),
        }
    }
}

/// A null that reached the operator would be a policy that it cannot read.
pub(crate) fn a_null_is_the_default(world: &World) {
    let spec = json!({
        "operator": null,
        "daemonSets": {"rollingUpdate": {"maxUnavailable": null}, "labels": null},
        "driver": {"env": null, "pfQueueNum": null, "resources": null},
    });
    let policy = world.try_policy("any", &spec, true).unwrap();
    let plain = world.try_policy("any", &json!({}), true).unwrap();
    assert_eq!(policy.data["spec"], plain.data["spec"]);
}
