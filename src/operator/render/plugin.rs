//! The plugin's DaemonSet. It has no right: neither privileges, nor capabilities, nor the host's network.

use serde_json::{Value, json};

use super::{
    CONFIG, CONFIG_KEY, HOST, PLUGIN, Place, RUN_DIRECTORY, daemon_set, host_path, on_host, resources, types,
};
use crate::daemon::{DEVICE_INFO_DIRECTORY, DEVICE_PLUGIN_DIRECTORY};
use crate::operator::crd::{KaePolicySpec, UpdateStrategy};
use crate::operator::labels::Gate;

/// Where the ConfigMap is mounted.
const CONFIG_DIRECTORY: &str = "/etc/pcidp";

/// The plugin. A first step waits for the driver.
pub fn plugin(place: &Place, policy: &KaePolicySpec) -> Value {
    let plugin = &policy.device_plugin;
    let kubelet = policy.host_paths.kubelet_root_dir.trim_end_matches('/');
    let holders = format!("{kubelet}/pod-resources");
    let mut arguments = vec![
        "--log-level=info".to_owned(),
        format!("--config-file={CONFIG_DIRECTORY}/{CONFIG_KEY}"),
        "--resource-prefix=openfuyao.com".to_owned(),
        format!("--kubelet-root-dir={kubelet}"),
    ];
    arguments.extend(plugin.args.iter().cloned());
    let mut container = json!({
        "name": PLUGIN,
        "image": plugin.image(),
        "imagePullPolicy": plugin.image_pull_policy.as_str(),
        "args": arguments,
        "env": plugin.env,
        "securityContext": without_rights(),
        "resources": plugin.resources.as_ref().map_or_else(
            || Some(json!({ "requests": { "cpu": "10m", "memory": "20Mi" }, "limits": { "memory": "100Mi" } })),
            resources,
        ).unwrap_or_else(|| json!({})),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            { "name": "devicesock", "mountPath": DEVICE_PLUGIN_DIRECTORY },
            { "name": "device-info", "mountPath": DEVICE_INFO_DIRECTORY },
            { "name": "pod-resources", "mountPath": holders, "readOnly": true },
            { "name": "config-volume", "mountPath": CONFIG_DIRECTORY, "readOnly": true },
        ],
    });
    if plugin.env.is_empty()
        && let Value::Object(container) = &mut container
    {
        container.remove("env");
    }
    let (config_map, key) = match &plugin.config_map_ref {
        Some(reference) => (reference.name.as_str(), reference.key.as_str()),
        None => (CONFIG, CONFIG_KEY),
    };
    let (first, mut volumes) = first_step(place, policy);
    volumes.extend([
        // A constant of the kubelet, whatever its root directory.
        host_path("devicesock", DEVICE_PLUGIN_DIRECTORY, "Directory"),
        host_path("device-info", DEVICE_INFO_DIRECTORY, "DirectoryOrCreate"),
        host_path("pod-resources", &holders, "DirectoryOrCreate"),
        json!({
            "name": "config-volume",
            "configMap": { "name": config_map, "items": [{ "key": key, "path": CONFIG_KEY }] },
        }),
    ]);
    let pod = json!({
        "nodeSelector": { (Gate::DevicePlugin.label()): "true" },
        "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
        "initContainers": [first],
        "containers": [container],
        "volumes": volumes,
    });
    let strategy = match policy.daemon_sets.update_strategy {
        UpdateStrategy::RollingUpdate => json!({
            "type": "RollingUpdate",
            "rollingUpdate": { "maxUnavailable": policy.daemon_sets.rolling_update.max_unavailable },
        }),
        UpdateStrategy::OnDelete => json!({ "type": "OnDelete" }),
    };
    daemon_set(place, policy, PLUGIN, strategy, pod)
}

/// Waits for the driver, and what it needs to see for that.
///
/// With a driver of ours, its pod says so in a file. A node that is opted out of the driver has no such pod: there, a uacce node
/// of an engine is enough. Without a driver of ours, the driver that the node has is looked at.
fn first_step(place: &Place, policy: &KaePolicySpec) -> (Value, Vec<Value>) {
    let engines = types(policy.operator.enabled());
    let (command, mounts, volumes) = if policy.driver.enabled {
        (
            json!(["kae-operator", "driver", "wait", "--run-dir", RUN_DIRECTORY, "--or-device", engines]),
            json!([{ "name": "run", "mountPath": RUN_DIRECTORY, "readOnly": true }]),
            vec![host_path("run", &on_host(policy, RUN_DIRECTORY), "DirectoryOrCreate")],
        )
    } else {
        (
            json!(["kae-operator", "driver", "check", "--root", HOST, "--types", engines]),
            json!([
                { "name": "host-sys", "mountPath": format!("{HOST}/sys"), "readOnly": true },
                { "name": "host-dev", "mountPath": format!("{HOST}/dev"), "readOnly": true },
            ]),
            vec![
                host_path("host-sys", &on_host(policy, "/sys"), "Directory"),
                host_path("host-dev", &on_host(policy, "/dev"), "Directory"),
            ],
        )
    };
    let step = json!({
        "name": "wait-for-driver",
        "image": place.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "securityContext": without_rights(),
        "resources": { "requests": { "cpu": "10m", "memory": "20Mi" }, "limits": { "memory": "100Mi" } },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    });
    (step, volumes)
}

/// The mounted directories belong to root; nothing else of root is needed.
fn without_rights() -> Value {
    json!({
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}
