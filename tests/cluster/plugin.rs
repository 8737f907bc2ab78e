//! The plugin on a node: as the pod of a DaemonSet, from our image.

use std::fs;

use crate::node::{LIMIT, Node, folder};
use crate::outcome::{Outcome, harness};

/// A folder of the repository, or of this suite.
fn file(path: &str) -> Outcome<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    fs::read_to_string(format!("{root}{path}")).map_err(harness(path))
}

/// A manifest of the repository with the image that was built here: all that a user of another image changes, too.
pub(crate) fn manifest(path: &str) -> Outcome<String> {
    let text = file(path)?;
    let image = |line: &str| match line.split_once("image: ") {
        Some((indent, name)) if !name.starts_with("localhost/busybox") => format!("{indent}image: localhost/pcidp:1"),
        _ => line.to_owned(),
    };
    Ok(text.lines().map(|line| image(line) + "\n").collect())
}

/// A manifest of this suite.
pub(crate) fn own_manifest(name: &str) -> Outcome<String> {
    manifest(&format!("tests/cluster/manifests/{name}.yaml"))
}

/// Makes this the node's plugin, and waits until it runs. One that runs already, from the same text, is kept.
pub(crate) fn serve(node: &Node, manifests: &str) -> Outcome {
    let kept = node.at("/run/cluster/plugin.yaml");
    if fs::read_to_string(&kept).is_ok_and(|text| text == manifests) {
        return Ok(());
    }
    remove(node)?;
    node.apply(manifests)?;
    node.kubectl(&format!("-n kube-system rollout status daemonset --timeout={LIMIT}s"))?;
    fs::write(kept, manifests).map_err(harness("cannot write into the node"))
}

/// Ends the plugin, whichever it is, and waits until the node offers nothing.
pub(crate) fn remove(node: &Node) -> Outcome {
    let _ = fs::remove_file(node.at("/run/cluster/plugin.yaml"));
    node.kubectl(&format!("-n kube-system delete daemonset --all --cascade=foreground --wait --timeout={LIMIT}s"))?;
    node.kubectl("-n kube-system delete configmap --ignore-not-found sriovdp-config device-plugin-config")?;
    for resource in offered(node)? {
        node.wait_for_capacity(&resource, 0)?;
    }
    Ok(())
}

/// The resources of the node that are no part of Kubernetes.
pub(crate) fn offered(node: &Node) -> Outcome<Vec<String>> {
    let text = node.get("node/node1", ".status.allocatable")?;
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
    Ok(all.into_iter().filter(|(name, count)| name.contains('/') && count != "0").map(|(name, _)| name).collect())
}

/// Removes the pods and networks of a scenario; the plugin stays for the next one.
pub(crate) fn clean_up(node: &Node) -> Outcome {
    node.kubectl(&format!("delete pods,network-attachment-definitions --all --wait --timeout={LIMIT}s")).map(drop)
}
