//! The plugin on a node: as the pod of a DaemonSet, from our image.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::node::{Node, limit, root};
use crate::outcome::{Outcome, harness, must};

/// A file of the repository.
pub(crate) fn file(path: &str) -> Outcome<String> {
    fs::read_to_string(root().join(path)).map_err(harness(path))
}

/// A DaemonSet of the Go plugin, in which nothing is changed but the image.
pub(crate) fn with_our_image(name: &str) -> Outcome<String> {
    let text = file(&format!("tests/cluster/manifests/{name}.yaml"))?;
    let image = |line: &str| match line.split_once("image: ") {
        Some((indent, _)) => format!("{indent}image: localhost/pcidp:{}\n", env!("CARGO_PKG_VERSION")),
        None => format!("{line}\n"),
    };
    Ok(text.lines().map(image).collect())
}

/// The ConfigMap and the DaemonSet as they ship.
pub(crate) fn shipped() -> Outcome<String> {
    Ok(file("deployments/configMap.yaml")? + "---\n" + &file("deployments/sriovdp-daemonset.yaml")?)
}

/// What `pcidp generate manifests` prints for a config.
pub(crate) fn generated(config: &Value, arguments: &[&str]) -> Outcome<String> {
    let place = tempfile::NamedTempFile::new().map_err(harness("no temporary file"))?;
    fs::write(place.path(), config.to_string()).map_err(harness("cannot write a config"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcidp"));
    command.args(["generate", "manifests", "--config-file"]).arg(place.path()).args(arguments);
    let output = command.output().map_err(harness("cannot start pcidp"))?;
    must(output.status.success(), String::from_utf8_lossy(&output.stderr))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the plugin as the shipped manifests say, on the host `demo`.
pub(crate) fn serve_as_shipped(node: &Node) -> Outcome {
    serve(node, &shipped()?)?;
    for resource in
        ["intel.com/intel_sriov_netdevice", "intel.com/intel_sriov_dpdk", "openfuyao.com/kae.hpre"]
    {
        node.wait_for_capacity(resource, 2)?;
    }
    Ok(())
}

/// Runs the shipped DaemonSet with a config of one's own.
pub(crate) fn serve_config(node: &Node, config: &Value) -> Outcome {
    serve(node, &with_config(config)?)
}

/// The shipped DaemonSet with a config of one's own.
fn with_config(config: &Value) -> Outcome<String> {
    let config = config_map("sriovdp-config", "config.json", config);
    Ok(format!("{config}\n---\n{}", file("deployments/sriovdp-daemonset.yaml")?))
}

/// Runs it on the host `eight-vfs`: four devices of `intel.com/vf_net`, and four of `intel.com/vf_vfio`.
pub(crate) fn serve_eight_vfs(node: &Node) -> Outcome {
    serve(node, &for_eight_vfs()?)?;
    node.wait_for_capacity("intel.com/vf_net", 4)?;
    node.wait_for_capacity("intel.com/vf_vfio", 4)
}

/// A pool of what is on a driver.
pub(crate) fn pool(name: &str, driver: &str) -> Value {
    json!({"resourceName": name, "selectors": {"drivers": [driver]}})
}

pub(crate) fn for_eight_vfs() -> Outcome<String> {
    with_config(&json!({"resourceList": [pool("vf_net", "iavf"), pool("vf_vfio", "vfio-pci")]}))
}

/// A config in a ConfigMap.
pub(crate) fn config_map(name: &str, key: &str, config: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": "kube-system"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: config.to_string()}})
}

/// Makes this the node's plugin; what it offers has to be waited for. One that runs already, from the same text, is kept.
pub(crate) fn serve(node: &Node, manifests: &str) -> Outcome {
    let kept = node.at("/run/cluster/plugin.yaml");
    if fs::read_to_string(&kept).is_ok_and(|text| text == manifests) {
        return Ok(());
    }
    remove(node)?;
    node.apply(manifests)?;
    keep(node, manifests)
}

/// Remembers what runs.
pub(crate) fn keep(node: &Node, manifests: &str) -> Outcome {
    fs::write(node.at("/run/cluster/plugin.yaml"), manifests).map_err(harness("cannot write into the node"))
}

/// Ends the plugin, whichever it is, and waits until the node offers nothing.
pub(crate) fn remove(node: &Node) -> Outcome {
    let _ = fs::remove_file(node.at("/run/cluster/plugin.yaml"));
    node.kubectl(&format!(
        "-n kube-system delete daemonset --all --cascade=foreground --wait --timeout={}s",
        limit()
    ))?;
    let others = "configmap/sriovdp-config configmap/device-plugin-config serviceaccount/sriov-device-plugin";
    node.kubectl(&format!("-n kube-system delete --ignore-not-found {others}"))?;
    for resource in offered(node)? {
        node.wait_for_capacity(&resource, 0)?;
    }
    Ok(())
}

/// Every number of allocatable devices that the API server tells of, from here on.
pub(crate) struct Watch<'a>(&'a Node);

impl<'a> Watch<'a> {
    pub(crate) fn begin(node: &'a Node, resource: &str) -> Outcome<Self> {
        let path = format!("{{.status.allocatable.{}}}", resource.replace('.', "\\."));
        node.shell(&format!(
            "kubectl get node node1 --watch -o 'jsonpath={path}{{\"\\n\"}}' > /run/tmp/seen 2>&1 < /dev/null & echo $! > /run/tmp/watch"
        ))?;
        Ok(Self(node))
    }

    pub(crate) fn end(self) -> Outcome<BTreeSet<String>> {
        self.0.shell("kill $(cat /run/tmp/watch)")?;
        Ok(self.0.shell("cat /run/tmp/seen")?.lines().map(str::to_owned).collect())
    }
}

/// The resources of the node that are no part of Kubernetes.
pub(crate) fn offered(node: &Node) -> Outcome<Vec<String>> {
    let text = node.get("node/node1", ".status.allocatable")?;
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
    Ok(all
        .into_iter()
        .filter(|(name, count)| name.contains('/') && count != "0")
        .map(|(name, _)| name)
        .collect())
}

/// Removes the pods and networks of a scenario; the plugin stays for the next one.
pub(crate) fn clean_up(node: &Node) -> Outcome {
    node.kubectl(&format!("delete pods,network-attachment-definitions --all --wait --timeout={}s", limit()))
        .map(drop)
}
