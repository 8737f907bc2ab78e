//! Pods that ask for devices.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::node::Node;
use crate::outcome::{Failure, Outcome};

/// A pod with one container that does nothing but hold devices. Its end is waited for: with a grace period of 0 the API
/// server forgets a pod while its netdevs are still on their way back.
pub(crate) fn pod(name: &str, devices: &[(&str, usize)]) -> Value {
    pod_with_networks(name, devices, "")
}

/// The same with networks for Multus.
pub(crate) fn pod_with_networks(name: &str, devices: &[(&str, usize)], networks: &str) -> Value {
    let limits: BTreeMap<&str, String> =
        devices.iter().map(|(resource, count)| (*resource, count.to_string())).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "app",
                "image": "localhost/busybox:1",
                "command": ["sleep", "99999"],
                "resources": {"limits": limits},
            }],
        },
    })
}

/// A network that moves the netdev of a device of `resource` into the pod.
pub(crate) fn network(name: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "annotations": {"k8s.v1.cni.cncf.io/resourceName": resource}},
        "spec": {"config": json!({
            "cniVersion": "1.0.0",
            "name": name,
            "type": "host-device",
            // Without it Multus calls the id of a subfunction a PCI address, and it is not found.
            "capabilities": {"deviceID": true},
        }).to_string()},
    })
}

/// Makes several objects at once.
pub(crate) fn create(node: &Node, objects: &[Value]) -> Outcome {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    node.kubectl_with(&["create", "-f", "-"], Some(&list.to_string())).map(drop)
}

/// Makes a pod and waits until it runs.
pub(crate) fn run(node: &Node, pod: &Value) -> Outcome {
    create(node, std::slice::from_ref(pod))?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    node.wait(&format!("pod/{name} --for=condition=Ready"))
}

/// Ends a pod and waits until it is gone.
pub(crate) fn delete(node: &Node, name: &str) -> Outcome {
    node.kubectl(&format!("delete pod {name} --wait")).map(drop)
}

/// The variables of a running pod that say what it was given.
pub(crate) fn variables(node: &Node, name: &str) -> Outcome<BTreeMap<String, String>> {
    let text = node.kubectl(&format!("exec {name} -- env"))?;
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    Ok(pairs
        .filter(|(name, _)| name.starts_with("PCIDEVICE_"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

/// The devices that a running pod was given, by the name of their variable.
pub(crate) fn devices(node: &Node, name: &str, variable: &str) -> Outcome<Vec<String>> {
    let variables = variables(node, name)?;
    let missing = || Failure::Product(format!("{name} has no {variable}, only {:?}", variables.keys()));
    Ok(variables.get(variable).ok_or_else(missing)?.split(',').map(str::to_owned).collect())
}

/// The names in a folder of a running pod, sorted.
pub(crate) fn list(node: &Node, name: &str, folder: &str) -> Outcome<Vec<String>> {
    let text = node.kubectl(&format!("exec {name} -- ls {folder}"))?;
    let mut names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// What Multus says of a pod's networks.
pub(crate) fn network_status(node: &Node, name: &str) -> Outcome<Vec<Value>> {
    let text =
        node.get(&format!("pod {name}"), ".metadata.annotations.k8s\\.v1\\.cni\\.cncf\\.io/network-status")?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::Product(format!("the network-status of {name} is no JSON: {error}: {text}"))
    })
}
