//! What the operator may do, and what it did: the API server kept books of every scenario.

use std::collections::BTreeSet;

use pcidp::operator::rbac;
use serde_json::Value;

use crate::world::World;

type Right = (String, String, String);

fn granted() -> BTreeSet<Right> {
    let rules = rbac::cluster_rules().into_iter().chain(rbac::namespace_rules()).chain(rbac::hook_rules());
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                rights.extend(rule.verbs.iter().map(|verb| (group.clone(), resource.clone(), verb.clone())));
            }
        }
    }
    rights
}

pub(crate) fn every_right_is_used_and_none_is_missing(world: &World) {
    let books = world.server.audit();
    let mut used = BTreeSet::new();
    let mut refused = BTreeSet::new();
    let mut requests = 0;
    for line in books.lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        let object = &entry["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut resource = text(&object["resource"]);
        if let Some(part) = object["subresource"].as_str() {
            resource = format!("{resource}/{part}");
        }
        let right = (text(&object["apiGroup"]), resource, text(&entry["verb"]));
        requests += 1;
        match entry["responseStatus"]["code"].as_u64() {
            Some(403) => drop(refused.insert(right)),
            // An object that is applied and was not there is created: that is another right.
            Some(201) if right.2 == "patch" => {
                used.insert((right.0.clone(), right.1.clone(), "create".to_owned()));
                used.insert(right);
            }
            _ => drop(used.insert(right)),
        }
    }
    assert!(requests > 100, "only {requests} requests are in the books; run all scenarios");
    assert!(refused.is_empty(), "missing rights: {refused:?}");
    let granted = granted();
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "rights that nothing uses: {unused:?}");
    eprintln!("{requests} requests, {} rights", granted.len());
}
