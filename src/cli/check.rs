//! `pcidp check`.

use std::io::Write;

use serde::Serialize;

use super::args::{CheckArguments, OutputFormat};
use super::{ConfigFile, Failure, Outcome, host, table};
use crate::config::{Config, Severity};
use crate::model::Inventory;
use crate::pool::{Pools, warnings};

pub(super) fn check(arguments: &CheckArguments, out: &mut dyn Write) -> Outcome {
    let file = ConfigFile::read(&arguments.file, &arguments.resource_prefix)?;
    let (inventory, pools) = match &arguments.host_root {
        Some(path) => {
            let (inventory, pools) = host::look(&host::open(path)?, Some(&file));
            (Some(inventory), Some(pools))
        }
        None => (None, None),
    };
    let hints = hints(&file.checked.config, inventory.as_ref(), pools.as_ref());
    match arguments.format.output {
        OutputFormat::Json => {
            writeln!(out, "{}", serde_json::to_string_pretty(&Report::new(&file, pools.as_ref(), hints))?)?;
        }
        OutputFormat::Table => text(&file, pools.as_ref(), &hints, out)?,
    }
    let errors = file.checked.errors().count();
    let warnings = file.checked.warnings().count();
    match errors > 0 || (arguments.strict && warnings > 0) {
        true => Err(Failure::Input(format!("{}: {}", file.path, counts(errors, warnings)))),
        false => Ok(()),
    }
}

fn counts(errors: usize, warnings: usize) -> String {
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!("{}, {}", count(errors, "error"), count(warnings, "warning"))
}

/// What a person should know of a config in which nothing is wrong.
fn hints(config: &Config, inventory: Option<&Inventory>, pools: Option<&Pools>) -> Vec<String> {
    let members = pools.into_iter().flat_map(|pools| &pools.pools).flat_map(|pool| &pool.members);
    let mut hints: Vec<String> =
        warnings(members.map(|member| &*member.device)).iter().map(ToString::to_string).collect();
    let needs_tool = match inventory {
        Some(inventory) => inventory
            .devices()
            .iter()
            .any(|device| device.driver.as_deref() == Some("i40e") && device.ddp_profile.is_none()),
        None => true,
    };
    if needs_tool && config.asks_for_ddp_profiles() {
        hints.push(
            "`ddpProfiles`: cards of Intel's 700 series (driver i40e) do not tell their package through devlink; the \
             plugin then runs ddptool, which is not in its image: docs/hardware.md says how to add it"
                .to_owned(),
        );
    }
    hints
}

fn text(
    file: &ConfigFile,
    pools: Option<&Pools>,
    hints: &[String],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if !file.checked.problems.is_empty() {
        writeln!(out, "{}", file.problems())?;
    }
    let config = &file.checked.config;
    for pool in &config.pools {
        writeln!(out, "{}: served, {}", pool.resource, pool.device_type.as_str())?;
    }
    for refused in &config.refused {
        let fallback = format!("resourceList[{}]", refused.position);
        writeln!(out, "{}: NOT served: {}", refused.resource.as_ref().unwrap_or(&fallback), refused.reason)?;
    }
    for (position, pool) in pools.iter().flat_map(|pools| pools.pools.iter().enumerate()) {
        writeln!(out, "{}: {} devices on this host", pool.config.resource, pool.members.len())?;
        for (owner, ids) in lost(pools, position) {
            writeln!(
                out,
                "{}: {} more match, but belong to {owner}: {}",
                pool.config.resource,
                ids.len(),
                ids.join(" ")
            )?;
        }
    }
    for hint in hints {
        writeln!(out, "{}", table::wrap(&format!("note: {hint}"), 6))?;
    }
    if file.checked.problems.is_empty() {
        writeln!(out, "{}: no problems", file.path)?;
    }
    Ok(())
}

/// The devices that a pool lost, by the pool that has them.
fn lost(pools: Option<&Pools>, position: usize) -> Vec<(String, Vec<String>)> {
    let Some(pools) = pools else { return Vec::new() };
    let Some(pool) = pools.pools.get(position) else {
        return Vec::new();
    };
    let owners = pools.pools.iter().enumerate().filter_map(|(owner, owning)| {
        let ids: Vec<String> =
            pool.lost.iter().filter(|(_, by)| *by == owner).map(|(id, _)| id.to_string()).collect();
        (!ids.is_empty()).then(|| (owning.config.resource.to_string(), ids))
    });
    owners.collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    path: &'a str,
    served: Vec<Served>,
    refused: Vec<Refused<'a>>,
    problems: Vec<ProblemReport<'a>>,
    notes: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    resource: String,
    device_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<(String, Vec<String>)>,
}

#[derive(Serialize)]
struct Refused<'a> {
    position: usize,
    resource: Option<&'a str>,
    reason: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProblemReport<'a> {
    severity: &'static str,
    path: &'a str,
    line: usize,
    column: usize,
    message: &'a str,
}

impl<'a> Report<'a> {
    fn new(file: &'a ConfigFile, pools: Option<&Pools>, notes: Vec<String>) -> Self {
        let config = &file.checked.config;
        let devices = |position: usize| {
            let members = &pools?.pools.get(position)?.members;
            Some(members.iter().map(|member| member.device.id.to_string()).collect())
        };
        let served = config.pools.iter().enumerate().map(|(position, pool)| Served {
            resource: pool.resource.to_string(),
            device_type: pool.device_type.as_str(),
            devices: devices(position),
            lost: lost(pools, position),
        });
        let refused = config.refused.iter().map(|refused| Refused {
            position: refused.position,
            resource: refused.resource.as_deref(),
            reason: &refused.reason,
        });
        let problems = file.checked.problems.iter().map(|problem| ProblemReport {
            severity: match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            path: &problem.json_path,
            line: problem.line,
            column: problem.column,
            message: &problem.message,
        });
        Self {
            path: &file.path,
            served: served.collect(),
            refused: refused.collect(),
            problems: problems.collect(),
            notes,
        }
    }
}
