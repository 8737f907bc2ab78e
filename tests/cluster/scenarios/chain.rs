//! The whole chain of `kae-operator`, with its own images: discovery, chart, operator, driver, plugin, pod, and the way back.

use std::env;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::node::{Node, limit, root};
use crate::outcome::{Failure, Outcome, must, same};
use crate::scenarios::discovery;
use crate::{plugin, pods};

const HPRE: &str = "openfuyao.com/kae.hpre";
const SEC: &str = "openfuyao.com/kae.sec";
/// Functions on `hisi_hpre` of the recorded host, without the physical one that has virtual ones.
const HPRE_ENGINES: usize = 3;
const SEC_ENGINES: usize = 2;

/// The node's root, as the policy names it: its `/sys` and `/dev`, and an `/etc` and a `/run` of its own. `/etc` is this
/// computer's otherwise.
const NODE_ROOT: &str = "/run/cluster/root";

/// What a driver of KAE 2.0 on openEuler 22.03 shows, beside what was recorded.
const PREINSTALLED: &str = "
[ ! -d ROOT ] || exit 0
for module in uacce hisi_qm hisi_hpre hisi_sec2; do mkdir -p /sys/module/$module/parameters; echo 2 > /sys/module/$module/refcnt; done
for module in hisi_hpre hisi_sec2; do echo 2 > /sys/module/$module/parameters/uacce_mode; echo 256 > /sys/module/$module/parameters/pf_q_num; done
mkdir -p ROOT/sys ROOT/dev ROOT/etc ROOT/run
mount --rbind /sys ROOT/sys
mount --rbind /dev ROOT/dev
printf 'ID=\"openEuler\"\\nVERSION_ID=\"22.03\"\\n' > ROOT/etc/os-release
";

/// There is no kube-proxy here, and a pod asks the API server at its service's address.
const SERVICE: &str = "iptables -w -t nat -A PREROUTING -d 10.96.0.1 -p tcp --dport 443 -j DNAT --to-destination 192.168.77.2:6443";

/// A copy of the chart. What it depends on is not used here; Helm only wants to see it.
const COPY: &str = "
rm -rf /run/tmp/chart
cp -r CHART /run/tmp/chart
mkdir -p /run/tmp/chart/charts/node-feature-discovery
printf 'apiVersion: v2\\nname: node-feature-discovery\\nversion: 0.16.4\\n' > /run/tmp/chart/charts/node-feature-discovery/Chart.yaml
";

/// The archives that `deployments/build-image` puts beside the plugin's.
fn archives() -> Outcome<Vec<PathBuf>> {
    let arch = if env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let pcidp = env::var_os("PCIDP_CLUSTER_IMAGE")
        .map_or_else(|| root().join(format!("dist/pcidp-{arch}.tar")), PathBuf::from);
    let beside =
        |name: &str| root().join(&pcidp).parent().unwrap_or(root()).join(format!("{name}-{arch}.tar"));
    let archives: Vec<PathBuf> =
        ["kae-operator", "kae-driver-installer", "kae-device-plugin"].map(beside).into();
    match archives.iter().find(|archive| !archive.is_file()) {
        Some(archive) => Err(Failure::Product(format!(
            "{} is not there; deployments/build-image makes it",
            archive.display()
        ))),
        None => Ok(archives),
    }
}

const VALUES: &str = "--set nfd.enabled=false,nfd.nodefeaturerules=true,hostPaths.rootFS=/run/cluster/root";

fn helm(node: &Node, words: &str) -> Outcome<String> {
    node.shell(&format!("helm --namespace kae {words} --timeout {}s", 2 * limit()))
}

/// What a person wants to see of a failure, besides.
fn with_evidence(node: &Node, outcome: Outcome) -> Outcome {
    outcome.map_err(|failure| match failure {
        Failure::Product(what) => {
            let look = "kubectl get pods,daemonsets,jobs -A -o wide; kubectl get kaepolicy kae-policy -o yaml | tail -n 70; \
                        kubectl get node node1 -o jsonpath='{.metadata.labels}'; echo; tail -n 40 /var/log/pods/kae*_*/*/*.log";
            let seen = node.shell(look).unwrap_or_else(|failure| format!("{failure:?}"));
            Failure::Product(format!("{what}\n{seen}"))
        }
        other => other,
    })
}

pub(crate) fn from_helm_to_an_engine_in_a_pod_and_back(node: &Node) -> Outcome {
    with_evidence(node, prepare(node).and_then(|()| there_and_back(node)))
}

pub(crate) fn after_an_uninstall_without_hooks_one_command_releases_the_policy(node: &Node) -> Outcome {
    with_evidence(node, prepare(node).and_then(|()| without_hooks(node)))
}

fn prepare(node: &Node) -> Outcome {
    plugin::remove(node)?;
    for archive in archives()? {
        let import = "ctr -a /run/cluster/containerd.sock -n k8s.io images import";
        node.shell(&format!("{import} '{}'", archive.display()))?;
    }
    node.shell(&PREINSTALLED.replace("ROOT", NODE_ROOT))?;
    node.shell(SERVICE)?;
    node.shell(
        &COPY.replace("CHART", &root().join("deployments/charts/kae-operator").display().to_string()),
    )?;
    discovery::discover(node)?;
    same("labels before", ours(node, "labels")?, Vec::<String>::new())
}

fn there_and_back(node: &Node) -> Outcome {
    helm(
        node,
        &format!(
            "install --create-namespace kae /run/tmp/chart --wait {VALUES},psa.enabled=true,operator.cleanupCRD=true"
        ),
    )?;
    a_pod_gets_an_engine(node)?;

    let values = "--reuse-values --set operator.enabledSEC=true,operator.upgradeCRD=true";
    helm(node, &format!("upgrade kae /run/tmp/chart --wait {values}"))?;
    node.wait_for_capacity(SEC, SEC_ENGINES)?;
    same("HPRE engines after the upgrade", node.capacity(HPRE)?, HPRE_ENGINES.to_string())?;
    // The driver's pod knows of the new kind when somebody deletes it.
    node.kubectl("-n kae delete pod --selector app.kubernetes.io/name=kae-driver-installer --wait")?;
    let updated = "{.status.components[?(@.name==\"kae-driver-installer\")].updated}";
    node.wait(&format!("kaepolicy/kae-policy --for=jsonpath={updated}=1"))?;
    same("permissions of SEC engines", node.shell("stat -c %a /dev/hisi_sec2-*")?.as_str(), "666\n666\n")?;

    pods::delete(node, "engine")?;
    helm(node, "uninstall kae --wait")?;
    nothing_is_left(node)?;
    node.kubectl("delete namespace kae --wait").map(drop)
}

/// In the namespace `default`, under whatever name.
fn without_hooks(node: &Node) -> Outcome {
    let helm = |words: &str| node.shell(&format!("helm --namespace default {words} --timeout {}s", limit()));
    helm(&format!("install --generate-name /run/tmp/chart --wait {VALUES}"))?;
    node.wait_for_capacity(HPRE, HPRE_ENGINES)?;
    helm("uninstall $(helm list --namespace default --short) --no-hooks")?;
    let run = "run release --image=localhost/openfuyao/kae-operator:latest --image-pull-policy=IfNotPresent --restart=Never -- \
               policy release --namespace default";
    node.kubectl(
        "create clusterrolebinding release --clusterrole=cluster-admin --serviceaccount=default:default",
    )?;
    node.kubectl(run)?;
    node.wait("pod/release --for=jsonpath={.status.phase}=Succeeded")?;
    node.kubectl("delete clusterrolebinding release")?;
    node.kubectl("delete crd kaepolicies.device.openfuyao.com --wait --timeout=60s")?;
    nothing_is_left(node)
}

fn a_pod_gets_an_engine(node: &Node) -> Outcome {
    node.wait_for_capacity(HPRE, HPRE_ENGINES)?;
    // Not sooner: a cluster in which no node has engines is ready, too.
    node.wait("kaepolicy/kae-policy --for=jsonpath={.status.state}=ready")?;
    same("nodes with engines", node.get("kaepolicy/kae-policy", ".status.nodes.hpre")?, "1")?;
    let level = node.get("namespace/kae", ".metadata.labels.pod-security\\.kubernetes\\.io/enforce")?;
    same("the namespace's level", level, "privileged")?;
    let rule = node.read(&format!("{NODE_ROOT}/etc/udev/rules.d/60-openfuyao-kae.rules"))?;
    must(rule.contains("MODE=\"0666\""), rule)?;

    pods::run(node, &pods::pod("engine", &[(HPRE, 1)]))?;
    let class = pods::list(node, "engine", "/sys/class/uacce")?;
    same("engines that the pod sees", class.len(), 1)?;
    let mode = node.kubectl(&format!("exec engine -- stat -c %a /dev/{}", class[0]))?;
    same("permissions of its node", mode.trim(), "666")?;
    let addresses = pods::devices(node, "engine", "PCIDEVICE_OPENFUYAO_COM_KAE_HPRE")?;
    let entry = node.shell(&format!("ls /sys/bus/pci/devices/{}/uacce", addresses[0]))?;
    same("its engine", entry.trim(), &class[0])
}

/// Labels or annotations of the node that are ours.
fn ours(node: &Node, what: &str) -> Outcome<Vec<String>> {
    let text = node.get("node/node1", &format!(".metadata.{what}"))?;
    let all: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    Ok(all.into_iter().map(|(name, _)| name).filter(|name| name.starts_with("openfuyao.com/")).collect())
}

fn nothing_is_left(node: &Node) -> Outcome {
    let kinds = "daemonsets,deployments,configmaps,serviceaccounts,roles,rolebindings,jobs,leases";
    let left = node.shell(&format!("kubectl get {kinds} -A -o name | grep kae || true"))?;
    same("objects in namespaces", left.as_str(), "")?;
    let kinds = "clusterroles,clusterrolebindings,nodefeaturerules,customresourcedefinitions";
    let left = node.shell(&format!("kubectl get {kinds} -o name | grep kae || true"))?;
    same("objects of the cluster", left.as_str(), "")?;
    // Node Feature Discovery takes its own away by itself, when the rule is gone.
    node.shell(
        "mkfifo /run/tmp/bare
         kubectl get nodes -l '!openfuyao.com/kae.hpre.present' --watch -o name > /run/tmp/bare & read node < /run/tmp/bare
         kill $!; rm /run/tmp/bare",
    )?;
    same("labels of the node", ours(node, "labels")?, Vec::<String>::new())?;
    same("annotations of the node", ours(node, "annotations")?, Vec::<String>::new())?;
    for resource in [HPRE, SEC] {
        if !node.capacity(resource)?.is_empty() {
            node.wait_for_capacity(resource, 0)?;
        }
    }
    Ok(())
}
