//! What a node had before a change, to be put back where the change fails.

use std::collections::BTreeMap;
use std::fs;

use super::engine::{EngineType, SHARED_MODULES};
use super::error::DriverError;
use super::found::Found;
use super::node::{self, Node, OPTIONS_FILE};
use super::record::{Ready, Record};
use super::{functions, modules, payload, permissions};
use crate::model::PciAddress;

/// What was before.
#[derive(Debug)]
pub(super) struct Former {
    kernel: String,
    /// Loaded modules with what they were loaded with.
    loaded: BTreeMap<&'static str, Vec<String>>,
    options: String,
    ready: Option<String>,
    record: Record,
    /// Virtual functions that this program made.
    functions: BTreeMap<String, u32>,
    /// Mode and group of nodes, by the addresses of their engines. udev sees to them, where there is udev.
    nodes: BTreeMap<PciAddress, (u32, u32)>,
    /// Files of the chain's modules, by their paths on the node. Packages may replace them.
    files: BTreeMap<String, Vec<u8>>,
}

impl Former {
    pub(super) fn take(node: &Node, found: &Found, record: &Record) -> Result<Self, DriverError> {
        let kernel = node.kernel()?;
        let mut files = BTreeMap::new();
        for path in modules::files(node, &kernel).into_values() {
            // What is part of the kernel has a name in its list, and no file.
            if let Ok(content) = fs::read(node.place(&path)) {
                files.insert(path, content);
            }
        }
        Ok(Self {
            loaded: found.modules.iter().map(|(name, module)| (*name, modules::parameters(module))).collect(),
            options: node.file(OPTIONS_FILE)?.unwrap_or_default(),
            ready: node::read(&Ready::path(node))?,
            functions: record.functions_that_are_there(found),
            record: record.clone(),
            nodes: permissions::of_engines(node, found),
            kernel,
            files,
        })
    }

    /// Modules of types that were loaded, with what they were loaded with.
    pub(super) fn drivers(&self) -> impl Iterator<Item = (EngineType, &[String])> {
        EngineType::ALL
            .into_iter()
            .filter_map(|kind| Some((kind, self.loaded.get(kind.driver())?.as_slice())))
    }

    /// Puts everything back and says what is as before, and what could not be.
    pub(super) fn restore(&self, node: &Node, new_packages: &[String]) -> String {
        let mut failed = Vec::new();
        let mut attempt = |outcome: Result<(), DriverError>| match outcome {
            Ok(()) => true,
            Err(error) => {
                failed.push(error.to_string());
                false
            }
        };
        attempt(self.unload(node));
        if !new_packages.is_empty() {
            attempt(payload::remove(node, new_packages).map(|_| ()));
        }
        attempt(self.restore_files(node));
        attempt(modules::write_options(node, &self.options));
        attempt(self.record.write(node));
        let is_loaded = attempt(self.load(node));
        let is_back = is_loaded
            && attempt(functions::restore(node, &self.functions).map_err(DriverError::from))
            && attempt(permissions::restore(node, &self.nodes));
        if let Some(ready) = self.ready.as_ref().filter(|_| is_back) {
            attempt(node::write(&Ready::path(node), ready));
        }
        match failed.is_empty() {
            true => self.described(),
            false => format!("what was before could not be restored in full: {}", failed.join("; ")),
        }
    }

    fn described(&self) -> String {
        let loaded: Vec<String> = self
            .drivers()
            .map(|(kind, parameters)| [&[kind.driver().to_owned()], parameters].concat().join(" "))
            .collect();
        match (loaded.is_empty(), self.loaded.is_empty()) {
            (true, true) => "no module was loaded before, and none is now".to_owned(),
            (true, false) => "the modules that were loaded before are loaded again".to_owned(),
            (false, _) => format!("the former driver is loaded again: {}", loaded.join(", ")),
        }
    }

    /// Away with what the change loaded, but what is just as before need not go.
    fn unload(&self, node: &Node) -> Result<(), DriverError> {
        let found = Found::read(node)?;
        let now: BTreeMap<_, _> =
            found.modules.iter().map(|(name, module)| (*name, modules::parameters(module))).collect();
        if now == self.loaded && self.files_are_as_before(node) {
            return Ok(());
        }
        Ok(modules::unload(node, &found)?)
    }

    fn files_are_as_before(&self, node: &Node) -> bool {
        let as_before = |(path, content): (&String, &Vec<u8>)| {
            fs::read(node.place(path)).is_ok_and(|now| now == *content)
        };
        self.files.iter().all(as_before)
    }

    fn restore_files(&self, node: &Node) -> Result<(), DriverError> {
        let now: Vec<String> = modules::files(node, &self.kernel).into_values().collect();
        let mut changed = false;
        for (path, content) in &self.files {
            let place = node.place(path);
            if fs::read(&place).is_ok_and(|now| now == *content) && now.contains(path) {
                continue;
            }
            changed = true;
            let written = || {
                fs::create_dir_all(place.parent().unwrap_or(&place))?;
                fs::write(&place, content)
            };
            written().map_err(|source| DriverError::Write { path: place.clone(), source })?;
        }
        // Files that came with packages and hide those of before.
        for path in now.iter().filter(|path| !self.files.contains_key(*path)) {
            changed |= node.remove(path)?;
        }
        if changed {
            modules::index(node, &self.kernel)?;
        }
        Ok(())
    }

    fn load(&self, node: &Node) -> Result<(), DriverError> {
        for (kind, parameters) in self.drivers() {
            modules::load(node, kind.driver(), parameters)?;
        }
        let shared = SHARED_MODULES.into_iter().rev().filter(|name| self.loaded.contains_key(name));
        for name in shared {
            modules::load(node, name, &[])?;
        }
        Ok(())
    }
}
