//! Node Feature Discovery, which labels the nodes that have engines.

use crate::node::Node;
use crate::outcome::Outcome;

const RULE: &str = r#"
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: kae}
spec:
  rules:
  - name: hpre
    labels: {openfuyao.com/kae.hpre.present: "true"}
    matchFeatures:
    - feature: pci.device
      matchExpressions:
        vendor: {op: In, value: ["19e5"]}
        device: {op: In, value: [a258, a259]}
"#;

/// Starts it, if it does not run yet, and has it look at the node.
pub(crate) fn discover(node: &Node) -> Outcome {
    const NAMES: &str = "NODE_NAME=node1 KUBERNETES_NAMESPACE=kube-system";
    if node.shell("kill -0 $(cat /run/cluster/pid/nfd-master)").is_err() {
        node.shell("kubectl apply -f $(dirname $(command -v nfd-master))/nfd-crds/nfd-api-crds.yaml")?;
        node.kubectl("wait --for=condition=Established --timeout=60s crd --all")?;
        let master = "nfd-master -kubeconfig $KUBECONFIG > /run/cluster/log/nfd-master.log 2>&1 < /dev/null";
        node.shell(&format!("{NAMES} {master} & echo $! > /run/cluster/pid/nfd-master"))?;
    }
    let worker =
        "nfd-worker -kubeconfig $KUBECONFIG -oneshot -no-owner-refs > /run/cluster/log/nfd-worker.log 2>&1";
    node.shell(&format!("{NAMES} {worker}")).map(drop)
}

pub(crate) fn node_feature_discovery_labels_a_node_that_has_engines(node: &Node) -> Outcome {
    discover(node)?;
    node.apply(RULE)?;
    node.wait("node/node1 --for=jsonpath={.metadata.labels.openfuyao\\.com/kae\\.hpre\\.present}=true")?;
    node.kubectl("delete nodefeaturerule kae").map(drop)
}
