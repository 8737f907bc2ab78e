//! The manifests as they ship: what they may, and what they may not.

use crate::node::{Node, root};
use crate::outcome::{Outcome, must, same};
use crate::{plugin, pods};

/// A line of `/proc/PID/status` of the plugin.
fn status(node: &Node, key: &str) -> Outcome<String> {
    Ok(node.shell(&format!("sed -n 's/^{key}:\\t*//p' /proc/$(pidof pcidp)/status"))?.trim().to_owned())
}

pub(crate) fn the_plugin_runs_without_any_right(node: &Node) -> Outcome {
    plugin::serve_as_shipped(node)?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        same(set, status(node, set)?, "0000000000000000")?;
    }
    same("NoNewPrivs", status(node, "NoNewPrivs")?, "1")?;
    same("seccomp, where 2 is a filter", status(node, "Seccomp")?, "2")?;
    let mounts = node.shell("cat /proc/$(pidof pcidp)/mounts")?;
    let mount = |at: &str| mounts.lines().find(|line| line.split(' ').nth(1) == Some(at));
    must(
        mount("/")
            .is_some_and(|line| line.split(' ').nth(3).is_some_and(|options| options.starts_with("ro"))),
        "a read-only root",
    )?;
    must(!mounts.contains("serviceaccount"), format!("no token of the API server:\n{mounts}"))
}

pub(crate) fn pod_security_objects_to_nothing_but_host_network_and_host_paths(node: &Node) -> Outcome {
    let manifests = plugin::shipped()?.replace("namespace: kube-system", "namespace: strict");
    node.apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: strict, labels: {pod-security.kubernetes.io/warn: restricted}}}",
    )?;
    let script = format!("kubectl apply --dry-run=server -f - 2>&1 <<'MANIFESTS'\n{manifests}\nMANIFESTS");
    let said = node.shell(&script)?;
    let objections: Vec<&str> = said.lines().filter(|line| line.contains("would violate")).collect();
    node.kubectl("delete namespace strict --wait=false")?;
    same("objections", objections.len(), 1)?;
    for forbidden in
        ["privileged (", "allowPrivilegeEscalation", "capabilities", "seccompProfile", "hostPort", "hostPID"]
    {
        must(!objections[0].contains(forbidden), format!("no objection to {forbidden}: {}", objections[0]))?;
    }
    for known in ["hostNetwork=true", "restricted volume type \"hostPath\""] {
        must(objections[0].contains(known), format!("an objection to {known}: {}", objections[0]))?;
    }
    Ok(())
}

pub(crate) fn the_api_server_takes_every_overlay(node: &Node) -> Outcome {
    let overlays = root().join("deployments/kustomize/overlays");
    node.apply("{apiVersion: v1, kind: Namespace, metadata: {name: pcidp-system}}")?;
    let names = node.shell(&format!("ls '{}'", overlays.display()))?;
    must(names.lines().count() >= 3, format!("overlays: {names}"))?;
    for name in names.lines() {
        let said = node.kubectl(&format!("apply --dry-run=server -k {}/{name}", overlays.display()))?;
        must(said.contains("daemonset.apps/kube-sriov-device-plugin"), format!("{name}: {said}"))?;
    }
    node.kubectl("delete namespace pcidp-system --wait=false").map(drop)
}

pub(crate) fn a_node_made_after_the_plugin_started_is_handed_over_all_the_same(node: &Node) -> Outcome {
    plugin::remove(node)?;
    node.shell("mv /dev/vfio/52 /dev/vfio/later-52; mv /dev/vfio/53 /dev/vfio/later-53")?;
    let served = plugin::serve_as_shipped(node);
    node.shell("mv /dev/vfio/later-52 /dev/vfio/52; mv /dev/vfio/later-53 /dev/vfio/53")?;
    served?;
    let seen = node.shell("ls /proc/$(pidof pcidp)/root/dev")?;
    must(!seen.contains("vfio"), format!("/dev in the pod is not the host's: {seen}"))?;
    pods::run(node, &pods::pod("late", &[("intel.com/intel_sriov_dpdk", 2)]))?;
    same("nodes", pods::list(node, "late", "/dev/vfio")?, vec!["52", "53", "vfio"])
}
