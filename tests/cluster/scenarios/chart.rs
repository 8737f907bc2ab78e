//! The Helm chart.

use std::collections::BTreeSet;

use crate::node::{Node, limit, root};
use crate::outcome::{Outcome, must, same};
use crate::plugin::{self, Watch};

const RESOURCE: &str = "intel.com/intel_sriov_dpdk";

pub(crate) fn ten_upgrades_of_the_chart_in_a_row_never_drop_a_device(node: &Node) -> Outcome {
    plugin::remove(node)?;
    let chart = root().join("deployments/charts/pcidp");
    let helm = |what: &str| {
        node.shell(&format!(
            "helm -n kube-system {what}",
            what = what.replace("CHART", &chart.display().to_string())
        ))
    };
    helm("install pcidp CHART")?;
    node.wait_for_capacity(RESOURCE, 2)?;
    let rolled = || node.kubectl(&format!("-n kube-system rollout status daemonset --timeout={}s", limit()));
    rolled()?;

    let watch = Watch::begin(node, RESOURCE)?;
    for round in 1..=10 {
        let before = node.shell("pidof pcidp")?;
        // A new pod waits for nothing but its own readiness.
        helm(&format!("upgrade pcidp CHART --set minReadySeconds=0,podAnnotations.round=r{round}"))?;
        rolled()?;
        must(node.shell("pidof pcidp")? != before, "another process serves now")?;
    }
    let seen = watch.end()?;
    helm("uninstall pcidp --wait")?;
    same("numbers of devices that the node ever offered", seen, BTreeSet::from(["2".to_owned()]))
}
