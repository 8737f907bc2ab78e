//! Only the image changes in a DaemonSet of the Go plugin.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::node::Node;
use crate::outcome::{Failure, Outcome, harness, must, same};
use crate::{plugin, pods};

pub(crate) fn in_the_reference_daemonset_only_the_image_changes(node: &Node) -> Outcome {
    let facts = facts()?;
    let config = plugin::config_map("sriovdp-config", "config.json", &facts["config"]);
    plugin::serve(node, &format!("{config}\n---\n{}", plugin::with_our_image("reference-daemonset")?))?;
    gives_what_the_go_plugin_gave(node, &facts, "intel.com")?;
    // It asks for `--log-dir=sriovdp`, in a mounted /var/log.
    must(!node.read("/var/log/sriovdp/pcidp.log")?.is_empty(), "the log file has lines")
}

pub(crate) fn in_the_daemonset_of_sriov_network_operator_only_the_image_changes(node: &Node) -> Outcome {
    let facts = facts()?;
    let config = plugin::config_map("device-plugin-config", "node1", &facts["config"]);
    plugin::serve(node, &format!("{config}\n---\n{}", plugin::with_our_image("operator-daemonset")?))?;
    gives_what_the_go_plugin_gave(node, &facts, "openshift.io")
}

fn facts() -> Outcome<Value> {
    let text = plugin::file("testdata/peer/cluster.json")?;
    serde_json::from_str(&text).map_err(|error| harness("testdata/peer/cluster.json")(error.into()))
}

fn gives_what_the_go_plugin_gave(node: &Node, facts: &Value, prefix: &str) -> Outcome {
    for (resource, count) in facts["allocatable"].as_object().into_iter().flatten() {
        let count = count.as_str().and_then(|count| count.parse().ok()).unwrap_or_default();
        node.wait_for_capacity(&resource.replace("intel.com", prefix), count)?;
    }
    let (net, vfio) = (format!("{prefix}/vf_net"), format!("{prefix}/vf_vfio"));
    pods::create(node, &[pods::network("vfnet", &net)])?;
    pods::run(node, &pods::pod_with_networks("probe", &[(&net, 1), (&vfio, 2)], "vfnet"))?;

    // Which devices the kubelet picks is its own affair: the facts are about two of four.
    let given = pods::variables(node, "probe")?;
    let variable = |name: &str| name.replace("INTEL_COM", &prefix.to_uppercase().replace('.', "_"));
    let expected = facts["variables"].as_object().into_iter().flatten();
    let names: BTreeSet<String> = expected.map(|(name, _)| variable(name)).collect();
    same("names of variables", given.keys().cloned().collect::<BTreeSet<_>>(), names)?;
    let mut groups = vec!["vfio".to_owned()];
    for (pool, known, count) in [("VF_NET", "0000:11:01.1", 1), ("VF_VFIO", "0000:11:01.4", 2)] {
        let name = format!("PCIDEVICE_INTEL_COM_{pool}");
        let ids: Vec<&str> = given[&variable(&name)].split(',').collect();
        same(&name, ids.len(), count)?;
        must(ids.is_sorted(), format!("{name} is sorted: {ids:?}"))?;
        let info: Value = parse(&given[&variable(&format!("{name}_INFO"))])?;
        let fact: Value = parse(facts["variables"][format!("{name}_INFO")].as_str().unwrap_or_default())?;
        for id in ids {
            let group = 1 + id.chars().last().and_then(|function| function.to_digit(10)).unwrap_or_default();
            if pool == "VF_VFIO" {
                groups.push(group.to_string());
            }
            let about = |fact: &Value| {
                parse(
                    &fact
                        .to_string()
                        .replace(known, id)
                        .replace("/dev/vfio/5", &format!("/dev/vfio/{group}")),
                )
            };
            superset(&format!("{name}_INFO of {id}"), &info[id], &about(&fact[known])?)?;

            let file = format!("{prefix}-{}-{id}-device.json", pool.to_lowercase());
            let path = format!("/var/run/k8s.cni.cncf.io/devinfo/dp/{file}");
            let known_file = format!("intel.com-{}-{known}-device.json", pool.to_lowercase());
            superset(&file, &parse(&node.read(&path)?)?, &about(&facts["files"][known_file])?)?;
            let mode = node.shell(&format!("stat -c %a '{path}'"))?;
            same(format!("mode of {file}"), mode.trim(), facts["mode"].as_str().unwrap_or_default())?;
            if pool == "VF_NET" {
                let status = pods::network_status(node, "probe")?;
                let moved = status.iter().find(|network| network["name"] == "default/vfnet");
                let info = moved.map_or(&Value::Null, |network| &network["device-info"]);
                superset("device-info in network-status", info, &about(&facts["network_status"])?)?;
            }
        }
    }
    groups.sort();
    same("nodes in /dev/vfio", pods::list(node, "probe", "/dev/vfio")?, groups)
}

fn parse(text: &str) -> Outcome<Value> {
    serde_json::from_str(text).map_err(|error| Failure::Product(format!("no JSON: {error}: {text}")))
}

/// Everything that the Go plugin writes must be there, with the same value.
fn superset(what: &str, found: &Value, expected: &Value) -> Outcome {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, value) in expected {
                superset(&format!("{what}, `{key}`"), found.get(key).unwrap_or(&json!(null)), value)?;
            }
            Ok(())
        }
        (found, expected) => same(what, found, expected),
    }
}
