//! The DaemonSets that install and that remove the driver. Both have the node's root.

use serde_json::{Value, json};

use super::{CLEANUP, DRIVER, HOST, Place, daemon_set, host_path, resources, types};
use crate::operator::crd::{INSTALL_POLICY, KaePolicySpec, MISPRINTED_INSTALL_POLICY};
use crate::operator::engine::Engine;
use crate::operator::labels::Gate;

/// The driver: a first step installs it, then a program keeps it right and tells whether it is.
///
/// Its pods are never replaced without being told: each new one may load modules.
pub fn driver(place: &Place, policy: &KaePolicySpec) -> Value {
    let engines: Vec<Engine> = policy.operator.enabled().collect();
    let driver = &policy.driver;
    let mut options = vec![
        format!("--types={}", types(engines.iter().copied())),
        format!("--uacce-mode={}", driver.uacce_mode.as_str()),
    ];
    if let Some(queues) = driver.pf_queue_num {
        options.push(format!("--pf-queues={queues}"));
    }
    let counts: Vec<String> = engines
        .iter()
        .filter_map(|engine| Some(format!("{}={}", engine.as_str(), driver.vfs.of(*engine)?)))
        .collect();
    if !counts.is_empty() {
        options.push(format!("--vfs={}", counts.join(",")));
    }
    options.push(format!("--device-mode={}", driver.device_permissions.mode));
    if !driver.device_permissions.group.is_empty() {
        options.push(format!("--device-group={}", driver.device_permissions.group));
    }
    let mut env: Vec<Value> = driver
        .env
        .iter()
        .filter(|variable| ![INSTALL_POLICY, MISPRINTED_INSTALL_POLICY].contains(&variable.name.as_str()))
        .map(|variable| json!(variable))
        .collect();
    env.push(json!({ "name": INSTALL_POLICY, "value": driver.effective_install_policy().as_str() }));

    let mut install = container(policy, "install", "install", &options);
    install["env"] = json!(env);
    if let Some(resources) = resources(&driver.resources) {
        install["resources"] = resources;
    }
    let mut hold = container(policy, "hold", "hold", &options);
    hold["env"] = json!(env);
    let ready = json!({ "command": ["kae-operator", "driver", "ready", "--root", HOST] });
    let probe = &driver.startup_probe;
    hold["startupProbe"] = json!({
        "exec": ready,
        "initialDelaySeconds": probe.initial_delay_seconds,
        "periodSeconds": probe.period_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "failureThreshold": probe.failure_threshold,
    });
    hold["readinessProbe"] =
        json!({ "exec": ready, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3 });
    daemon_set(place, policy, DRIVER, json!({ "type": "OnDelete" }), pod(policy, install, hold))
}

/// A label that no node has: a DaemonSet that selects it runs nowhere.
const HELD: &str = "openfuyao.com/kae.driver.cleanup-held";

/// Removes the driver from the nodes that have one. It lives until that is done everywhere. While `is_held`, it waits.
pub fn cleanup(place: &Place, policy: &KaePolicySpec, is_held: bool) -> Value {
    let remove = container(policy, "remove", "remove", &[]);
    let mut hold = container(policy, "hold", "hold", &[]);
    hold["command"] = json!(["kae-operator", "driver", "hold", "--removed"]);
    let mut set =
        daemon_set(place, policy, CLEANUP, json!({ "type": "OnDelete" }), pod(policy, remove, hold));
    let pod = &mut set["spec"]["template"]["spec"];
    pod["serviceAccountName"] = json!(DRIVER);
    if is_held {
        pod["nodeSelector"][HELD] = json!("true");
    }
    set
}

fn container(policy: &KaePolicySpec, name: &str, verb: &str, options: &[String]) -> Value {
    let mut command = ["kae-operator", "driver", verb, "--root", HOST].map(str::to_owned).to_vec();
    command.extend_from_slice(options);
    json!({
        "name": name,
        "image": policy.driver.image(),
        "imagePullPolicy": policy.driver.image_pull_policy.as_str(),
        "command": command,
        "securityContext": { "privileged": true },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        // What is mounted on the node later (a data disk, a devtmpfs) is seen, too.
        "volumeMounts": [{ "name": "host-root", "mountPath": HOST, "mountPropagation": "HostToContainer" }],
    })
}

fn pod(policy: &KaePolicySpec, first: Value, main: Value) -> Value {
    json!({
        "hostPID": true,
        "hostIPC": true,
        "hostNetwork": true,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "nodeSelector": { (Gate::Driver.label()): "true" },
        "initContainers": [first],
        "containers": [main],
        "volumes": [host_path("host-root", &policy.host_paths.root_fs, "Directory")],
    })
}
