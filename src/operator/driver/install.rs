//! Installs the driver, or leaves one alone that is good.
//!
//! ```text
//!  look ──▶ can be used, IfNotPresent ──────────────────────────────▶ keep ──┐
//!   │                                                                        │
//!   ├────▶ modules are missing ──▶ packages? ─────────────▶ load ──▶ usable? ├─▶ functions ─▶ permissions ─▶ driver-ready
//!   │                                  ▲                     ▲  │      │     │
//!   └────▶ kernel only, or Always      │ new files           │  │      no    yes
//!              │                       │                     │  │      │
//!              ▼             no        │                     │  │      ▼
//!           in use? ──────────────▶ unload        next mode ─┘  └──▶ failed ──▶ put back what was before
//!              │ yes
//!              ▼
//!           refused, nothing was changed
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::busy::{self, holders};
use super::check::{Checked, Problem, check, judge};
use super::engine::EngineType;
use super::error::DriverError;
use super::former::Former;
use super::found::Found;
use super::modules::{self, UacceMode};
use super::node::Node;
use super::payload::Payload;
use super::permissions::{self, Permissions};
use super::record::{Ready, Record};
use super::{functions, system};

/// What to do where there is a driver already (`INSTALL_POLICY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallPolicy {
    /// Keep it.
    IfNotPresent,
    /// Remove it, then install.
    Always,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Types of engines.
    pub types: Vec<EngineType>,
    /// What to do where there is a driver already.
    pub policy: InstallPolicy,
    /// Where packages lie.
    pub packages: PathBuf,
    /// How user space reaches the engines.
    pub uacce_mode: UacceMode,
    /// Queues of a physical function; the driver's own default where there is no number.
    pub pf_queues: Option<u32>,
    /// Virtual functions of every physical function, by type.
    pub functions: BTreeMap<EngineType, u32>,
    /// Who may open the nodes.
    pub permissions: Permissions,
}

/// Says a line to whoever watches.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

/// What is to be done with modules.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// The driver can be used.
    Keep,
    /// Nothing is in the way of what is missing.
    Load { packages: bool },
    /// What is loaded has to go first.
    Reload { packages: bool, why: String },
}

/// `is_due`: packages were supplied that were not installed for this kernel.
fn plan(request: &Request, found: &Found, checked: &Checked, has_packages: bool, is_due: bool) -> Plan {
    let is_loaded = found.modules.values().any(|module| module.references.is_some());
    let is_missing = |problem: &Problem| matches!(problem, Problem::ModuleNotLoaded(_));
    match request.policy {
        InstallPolicy::Always if is_loaded => {
            Plan::Reload { packages: has_packages, why: "the policy is Always".to_owned() }
        }
        InstallPolicy::Always => Plan::Load { packages: has_packages },
        InstallPolicy::IfNotPresent if checked.problems.is_empty() => Plan::Keep,
        InstallPolicy::IfNotPresent => match checked.problems.iter().find(|problem| !is_missing(problem)) {
            Some(problem) => Plan::Reload { packages: is_due, why: problem.to_string() },
            // Modules of two origins do not fit together.
            None if is_due && is_loaded => {
                Plan::Reload { packages: true, why: "other modules of it come with the packages".to_owned() }
            }
            None => Plan::Load { packages: is_due },
        },
    }
}

/// Installs the driver as asked for. Doing so again changes nothing.
///
/// # Errors
/// Says what failed, and what is as before.
pub fn install(node: &Node, request: &Request, tell: Tell<'_>) -> Result<(), DriverError> {
    let _lock = node.lock()?;
    if let Some(warning) = system::untested(node)? {
        tell(&format!("warning: {warning}"));
    }
    let kernel = node.kernel()?;
    let payload = Payload::read(&request.packages)?;
    let mut record = Record::read(node)?;
    let found = Found::read(node)?;
    let checked = judge(&found, &request.types);
    if checked.problems.contains(&Problem::NoEngines) {
        return Err(DriverError::NoEngines { types: named(&request.types) });
    }
    for note in &checked.notes {
        tell(&format!("note: {note}"));
    }
    let types: Vec<EngineType> = request
        .types
        .iter()
        .copied()
        .filter(|&kind| found.of(kind).next().is_some() && !found.is_all_vfio(kind))
        .collect();
    let is_installed = record.kernel.as_ref() == Some(&kernel)
        && record.packages_hash.as_deref() == Some(payload.hash())
        && modules::first_absent(node, &kernel, &types).is_none();
    let is_due = !payload.is_empty() && !is_installed;
    let plan = plan(request, &found, &checked, !payload.is_empty(), is_due);
    let change = Change { node, request, types: &types, kernel: &kernel, payload: &payload };
    let driver = match &plan {
        Plan::Keep => {
            tell(&format!("kept: {}", described(&found, &checked)));
            "found"
        }
        Plan::Load { packages } => change.make(&found, &mut record, (false, *packages), tell)?,
        Plan::Reload { packages, why } => {
            let ours = record.functions_that_are_there(&found);
            let holders = holders(&found, &ours, busy::processes(node, &found));
            if !holders.is_empty() {
                let what = if *packages { "reinstalled" } else { "reloaded" };
                return Err(match request.policy {
                    InstallPolicy::Always => DriverError::Busy { what, holders },
                    InstallPolicy::IfNotPresent => DriverError::UnusableAndBusy { why: why.clone(), holders },
                });
            }
            tell(&format!("the driver is {}: {why}", if *packages { "reinstalled" } else { "reloaded" }));
            change.make(&found, &mut record, (true, *packages), tell)?
        }
    };
    finish(node, request, driver, record, tell)
}

/// What comes after modules, whether they were loaded now or before.
fn finish(
    node: &Node,
    request: &Request,
    driver: &str,
    mut record: Record,
    tell: Tell<'_>,
) -> Result<(), DriverError> {
    let made = functions::make(node, &Found::read(node)?, &request.functions)?;
    for (function, count) in made {
        tell(&format!("made {count} virtual functions on {function}"));
        record.virtual_functions.insert(function, count);
        record.write(node)?;
    }
    if permissions::write_rule(node, &request.permissions)? {
        tell(&format!("wrote {}", super::node::RULES_FILE));
    }
    let found = Found::read(node)?;
    let entries: Vec<String> =
        request.types.iter().flat_map(|&kind| found.entries(kind)).map(|entry| entry.name.clone()).collect();
    for changed in permissions::set(node, &entries, &request.permissions)? {
        tell(&format!("set the permissions of {changed}"));
    }
    let checked = check(node, &request.types, Some(&request.permissions))?;
    if !checked.problems.is_empty() {
        Ready::remove(node)?;
        return Err(DriverError::NotUsable { problems: checked.problems });
    }
    Ready::new(node, driver, &found, &checked)?.write(node)?;
    tell(&format!("ready: {}", described(&found, &checked)));
    Ok(())
}

/// A change of what is loaded.
struct Change<'a> {
    node: &'a Node,
    request: &'a Request,
    /// Types of which there are engines.
    types: &'a [EngineType],
    kernel: &'a str,
    payload: &'a Payload,
}

impl Change<'_> {
    /// Makes it, or puts everything back.
    fn make(
        &self,
        found: &Found,
        record: &mut Record,
        (unload, packages): (bool, bool),
        tell: Tell<'_>,
    ) -> Result<&'static str, DriverError> {
        if !packages {
            // Before anything is changed: what is unloaded now could not be loaded again.
            self.need_modules()?;
        }
        let former = Former::take(self.node, found, record)?;
        Ready::remove(self.node)?;
        let mut new = Vec::new();
        let mut attempt = || {
            if unload {
                functions::remove(self.node, &record.functions_that_are_there(found))?;
                modules::unload(self.node, found)?;
            }
            record.virtual_functions.clear();
            if packages {
                tell(&format!("installing {}", self.payload.files().join(", ")));
                let outcome = self.payload.install(self.node, &mut new);
                record.packages.extend(
                    new.iter().filter(|name| !record.packages.contains(name)).cloned().collect::<Vec<_>>(),
                );
                // Written before anything else can fail or end this process: a removal must know of it.
                record.write(self.node)?;
                outcome?;
                modules::index(self.node, self.kernel)?;
                self.need_modules()?;
            }
            self.load(&former, tell)
        };
        match attempt() {
            Ok(()) if packages => {
                record.kernel = Some(self.kernel.to_owned());
                record.packages_hash = Some(self.payload.hash().to_owned());
                record.write(self.node)?;
                Ok("installed")
            }
            Ok(()) => {
                record.write(self.node)?;
                Ok("loaded")
            }
            Err(source) => {
                let restored = former.restore(self.node, &new);
                Err(DriverError::RolledBack { source: Box::new(source), restored })
            }
        }
    }

    fn need_modules(&self) -> Result<(), DriverError> {
        match modules::first_absent(self.node, self.kernel, self.types) {
            None => Ok(()),
            Some(module) => Err(DriverError::NoModule {
                kernel: self.kernel.to_owned(),
                module,
                packages: self.request.packages.display().to_string(),
            }),
        }
    }

    /// Loads the modules with each mode that may be right, until the engines can be used.
    fn load(&self, former: &Former, tell: Tell<'_>) -> Result<(), DriverError> {
        let chosen = match self.request.uacce_mode {
            UacceMode::Auto => modules::chosen_modes(self.node, self.types),
            UacceMode::Sva | UacceMode::NoSva => BTreeMap::new(),
        };
        let has_choice = !self.types.iter().all(|kind| chosen.contains_key(kind));
        let candidates = self.request.uacce_mode.candidates();
        let mut candidates = candidates.iter().take(if has_choice { candidates.len() } else { 1 }).peekable();
        while let Some(&mode) = candidates.next() {
            let options = modules::options(self.types, mode, &chosen, self.request.pf_queues);
            modules::write_options(self.node, &options)?;
            let outcome = self.load_types(former);
            match outcome {
                Err(error) if candidates.peek().is_some() => {
                    tell(&format!("note: uacce_mode={mode} does not work here: {error}"));
                    modules::unload(self.node, &Found::read(self.node)?)?;
                }
                outcome => return outcome,
            }
        }
        Ok(())
    }

    fn load_types(&self, former: &Former) -> Result<(), DriverError> {
        for kind in self.types {
            modules::load(self.node, kind.driver(), &[])?;
        }
        // Engines that are not asked for had a driver, too.
        for (kind, parameters) in former.drivers().filter(|(kind, _)| !self.types.contains(kind)) {
            modules::load(self.node, kind.driver(), parameters)?;
        }
        let problems = judge(&Found::read(self.node)?, self.types).problems;
        match problems.is_empty() {
            true => Ok(()),
            false => Err(DriverError::NotUsable { problems }),
        }
    }
}

fn named(types: &[EngineType]) -> String {
    types.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

/// `hpre: hisi_hpre-2, hisi_hpre-3 (uacce_mode=2)`.
fn described(found: &Found, checked: &Checked) -> String {
    let described = checked.entries.iter().map(|(kind, entries)| {
        let mode = found.modules.get(kind.driver()).and_then(|module| module.uacce_mode.as_ref());
        let mode = mode.map(|mode| format!(" (uacce_mode={mode})")).unwrap_or_default();
        format!("{kind}: {}{mode}", entries.join(", "))
    });
    let described: Vec<String> = described.collect();
    if described.is_empty() { "no engine is for containers".to_owned() } else { described.join("; ") }
}
