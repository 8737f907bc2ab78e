//! `pcidp explain`.

use std::io::Write;

use serde_json::json;

use super::args::{ExplainArguments, OutputFormat};
use super::devices::{DeviceReport, kind, names, of_host, pool_of, write_warnings};
use super::{ConfigFile, Failure, Outcome, host, table};
use crate::host::{HostRoot, find};
use crate::model::{Device, DeviceId, Inventory, PciAddress};
use crate::pool::{DeviceExplanation, PoolExplanation, Pools, Step, Warning, explain_device, explain_pool};

pub(super) fn explain(arguments: &ExplainArguments, out: &mut dyn Write) -> Outcome {
    let config =
        ConfigFile::read(&arguments.config.config_file, &arguments.config.resource_prefix)?.usable()?;
    let host = host::open(&arguments.host.host_root)?;
    let (inventory, pools) = host::look(&host, Some(&config));
    let json = arguments.format.output == OutputFormat::Json;
    if let Ok(address) = arguments.what.parse::<PciAddress>() {
        let device = match inventory.get(&DeviceId::from(address)) {
            Some(device) => Device::clone(device),
            // Its class may be one that no pool can want; then that is the answer.
            None => find(&host, address).map_err(|note| Failure::Input(format!("pcidp: {note}")))?,
        };
        let explanation = explain_device(&config.checked.config, &pools, &device);
        let warnings = about(&inventory, std::slice::from_ref(&device.id));
        return match json {
            true => device_json(&device, &pools, (&explanation, &warnings), out),
            false => Ok(device_text(&device, (&explanation, &warnings), &config, out)?),
        };
    }
    let position = position(&config, &arguments.what)?;
    let explanation = explain_pool(&config.checked.config, &pools, &inventory, position);
    let Some(explanation) = explanation else { return Ok(()) };
    let members: Vec<DeviceId> = explanation.members.iter().map(|(id, _)| id.clone()).collect();
    let warnings = about(&inventory, &members);
    let mut explanation = explanation;
    if members.is_empty()
        && config.checked.config.pools.get(position).is_some_and(|pool| pool.may_hold_engines())
        && is_without_engines(&host, &inventory)
    {
        explanation.sentence.push_str(NO_ENGINES);
    }
    match json {
        true => pool_json(&explanation, &warnings, out),
        false => Ok(pool_text(&explanation, &warnings, &inventory, out)?),
    }
}

/// What a person with a Kunpeng server can do about it.
const NO_ENGINES: &str = " The host has the kernel's part of KAE (/sys/class/uacce) and not one engine: they show up on the \
PCI bus only with a KAE licence, and where the firmware has them switched on.";

/// Whether drivers of engines are there and engines are not.
fn is_without_engines(host: &HostRoot, inventory: &Inventory) -> bool {
    host.list("/sys/class/uacce").is_ok_and(|entries| entries.is_empty())
        && !inventory.devices().iter().any(|device| device.is_kae_engine())
}

/// The warnings that tell of one of these devices.
fn about(inventory: &Inventory, ids: &[DeviceId]) -> Vec<Warning> {
    of_host(inventory).into_iter().filter(|warning| ids.iter().any(|id| warning.concerns(id))).collect()
}

/// The pool that the user named.
fn position(config: &ConfigFile, what: &str) -> Result<usize, Failure> {
    let pools = &config.checked.config.pools;
    let found =
        pools.iter().position(|pool| pool.resource.to_string() == what || pool.resource.name() == what);
    if let Some(position) = found {
        return Ok(position);
    }
    let is_it = |name: &str| name == what || name.split_once('/').is_some_and(|(_, name)| name == what);
    let mut refused = config.checked.config.refused.iter();
    if let Some(refused) = refused.find(|refused| refused.resource.as_deref().is_some_and(is_it)) {
        return Err(Failure::Input(format!("pcidp: pool {what} is not served: {}", refused.reason)));
    }
    let names: Vec<String> = pools.iter().map(|pool| pool.resource.to_string()).collect();
    Err(Failure::Input(format!(
        "pcidp: `{what}` is neither a PCI address nor a resource of {}; it has {}",
        config.path,
        if names.is_empty() { "none that can be served".to_owned() } else { names.join(", ") }
    )))
}

fn device_text(
    device: &Device,
    (explanation, warnings): (&DeviceExplanation, &[Warning]),
    config: &ConfigFile,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (vendor, name) = names(device);
    writeln!(
        out,
        "{}",
        table::wrap(&format!("{}  {}:{} {vendor} {name}", device.id, device.vendor, device.device), 2)
    )?;
    let mut facts = vec![kind(device)];
    if let Some(pf) = device.pf() {
        let names = if pf.names.is_empty() { String::new() } else { format!(" ({})", pf.names.join(", ")) };
        facts = vec![format!("{} of {}{names}", kind(device), pf.address)];
    }
    facts.push(match &device.driver {
        Some(driver) => format!("driver {driver}"),
        None => "no driver".to_owned(),
    });
    facts.extend(device.numa_node.map(|node| format!("NUMA node {node}")));
    facts.extend(device.iommu_group.map(|group| format!("IOMMU group {group}")));
    let netdevs: Vec<&str> = device.netdev_names().collect();
    if !netdevs.is_empty() {
        facts.push(format!("netdev {}", netdevs.join(", ")));
    }
    writeln!(out, "{}\n", table::wrap(&format!("  {}", facts.join(", ")), 2))?;
    writeln!(out, "{}", table::wrap(&explanation.sentence, 2))?;
    write_warnings(warnings, out)?;
    for pool in &explanation.pools {
        let verdict = match (pool.member, &pool.lost_to) {
            (true, _) => "it is in this pool".to_owned(),
            (false, Some(owner)) => format!("it matches, but {owner} comes first"),
            (false, None) => "not in this pool".to_owned(),
        };
        writeln!(out, "\npool {}: {verdict}", pool.resource)?;
        for (position, object) in pool.objects.iter().enumerate() {
            if pool.objects.len() > 1 {
                writeln!(out, "  selectors[{position}]")?;
            }
            let matched: Vec<&str> =
                object.tests.iter().filter(|(_, answer)| answer.is_ok()).map(|(key, _)| *key).collect();
            if !matched.is_empty() {
                writeln!(out, "{}", table::wrap(&format!("  ok    {}", matched.join(", ")), 8))?;
            }
            for miss in object.tests.iter().filter_map(|(_, answer)| answer.as_ref().err()) {
                writeln!(
                    out,
                    "{}",
                    table::wrap(&format!("  MISS  {:<14} wanted {}", miss.key, miss.wanted), 30)
                )?;
                writeln!(out, "{}", table::wrap(&format!("{:22} found  {}", "", miss.found), 30))?;
            }
        }
    }
    for refused in &config.checked.config.refused {
        let name = refused.resource.clone().unwrap_or_else(|| format!("resourceList[{}]", refused.position));
        writeln!(out, "\n{}", table::wrap(&format!("pool {name}: not served: {}", refused.reason), 2))?;
    }
    Ok(())
}

fn pool_text(
    explanation: &PoolExplanation,
    warnings: &[Warning],
    inventory: &Inventory,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    writeln!(out, "{}", table::wrap(&explanation.sentence, 2))?;
    write_warnings(warnings, out)?;
    writeln!(out)?;
    for (position, steps) in explanation.objects.iter().enumerate() {
        if explanation.objects.len() > 1 {
            writeln!(out, "selectors[{position}]")?;
        }
        writeln!(out, "  {:>4} devices on the host", inventory.devices().len())?;
        for Step { key, left, wanted, found } in steps {
            writeln!(out, "  {left:>4} left after {key}")?;
            if let Some(wanted) = wanted {
                let found: Vec<String> =
                    found.iter().map(|(text, count)| format!("{count} × {text}")).collect();
                let shown = found.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
                let more = found.len().saturating_sub(4);
                let more = if more > 0 { format!(" and {more} other answers") } else { String::new() };
                writeln!(out, "{}", table::wrap(&format!("       wanted {wanted}; found {shown}{more}"), 9))?;
            }
        }
    }
    if !explanation.members.is_empty() {
        writeln!(out, "\ndevices")?;
    }
    for (id, health) in &explanation.members {
        writeln!(out, "{}", table::wrap(&format!("  {id}  {health}"), 4))?;
    }
    if !explanation.lost.is_empty() {
        writeln!(out, "\nmatch too, but belong to an earlier pool")?;
    }
    for (id, owner) in &explanation.lost {
        writeln!(out, "  {id}  {owner}")?;
    }
    Ok(())
}

fn device_json(
    device: &Device,
    pools: &Pools,
    (explanation, warnings): (&DeviceExplanation, &[Warning]),
    out: &mut dyn Write,
) -> Outcome {
    let test = |(key, answer): &(&'static str, Result<(), crate::select::Miss>)| match answer {
        Ok(()) => json!({"key": key, "match": true}),
        Err(miss) => json!({"key": key, "match": false, "wanted": miss.wanted, "found": miss.found}),
    };
    let judged: Vec<_> = explanation
        .pools
        .iter()
        .map(|pool| {
            let objects: Vec<Vec<_>> =
                pool.objects.iter().map(|object| object.tests.iter().map(test).collect()).collect();
            json!({"resource": pool.resource, "member": pool.member, "lostTo": pool.lost_to, "selectors": objects})
        })
        .collect();
    let report = json!({
        "device": DeviceReport::new(device, Some(pool_of(device, pools))),
        "sentence": explanation.sentence,
        "warnings": warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "pools": judged,
    });
    Ok(writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?)
}

fn pool_json(explanation: &PoolExplanation, warnings: &[Warning], out: &mut dyn Write) -> Outcome {
    let step = |step: &Step| {
        let found: Vec<_> =
            step.found.iter().map(|(text, count)| json!({"text": text, "devices": count})).collect();
        json!({"key": step.key, "left": step.left, "wanted": step.wanted, "found": found})
    };
    let objects: Vec<Vec<_>> =
        explanation.objects.iter().map(|steps| steps.iter().map(step).collect()).collect();
    let members = explanation.members.iter().map(|(id, health)| {
        let reason = match health {
            crate::model::Health::Healthy => None,
            crate::model::Health::Unhealthy(reason) => Some(reason),
        };
        json!({"id": id.as_str(), "healthy": health.is_healthy(), "reason": reason})
    });
    let lost = explanation.lost.iter().map(|(id, owner)| json!({"id": id.as_str(), "pool": owner}));
    let report = json!({
        "resource": explanation.resource,
        "sentence": explanation.sentence,
        "warnings": warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "selectors": objects,
        "devices": members.collect::<Vec<_>>(),
        "lost": lost.collect::<Vec<_>>(),
    });
    Ok(writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?)
}
