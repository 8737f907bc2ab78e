//! Loading and unloading modules, and their options.

use std::collections::BTreeMap;
use std::fs;

use super::engine::{EngineType, SHARED_MODULES, modules_from_the_top};
use super::error::DriverError;
use super::found::{Found, Module};
use super::node::{Node, OPTIONS_FILE};
use super::programs::ProgramError;

/// What people and packages write options into, beside this program.
const OPTION_DIRECTORIES: [&str; 3] = ["/usr/lib/modprobe.d", "/run/modprobe.d", "/etc/modprobe.d"];

/// What `uacce_mode` is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UacceMode {
    /// What an administrator chose, else without SVA, else with it: the KAE packages know both, the kernel's own modules
    /// only the latter.
    Auto,
    /// 1.
    Sva,
    /// 2.
    NoSva,
}

impl UacceMode {
    /// What is tried, in this order.
    pub fn candidates(self) -> &'static [u8] {
        match self {
            Self::Auto => &[2, 1],
            Self::Sva => &[1],
            Self::NoSva => &[2],
        }
    }
}

/// Options of one module as `modprobe` takes them: what it is loaded with now.
pub(super) fn parameters(module: &Module) -> Vec<String> {
    let mode = module.uacce_mode.iter().map(|mode| format!("uacce_mode={mode}"));
    mode.chain(module.pf_queues.map(|queues| format!("pf_q_num={queues}"))).collect()
}

/// The content of the options file; empty where there is nothing to say. `chosen` are modes of an administrator.
pub(super) fn options(
    types: &[EngineType],
    mode: u8,
    chosen: &BTreeMap<EngineType, u8>,
    pf_queues: Option<u32>,
) -> String {
    let line = |kind: &EngineType| {
        let mode = (!chosen.contains_key(kind)).then(|| format!(" uacce_mode={mode}"));
        let queues = pf_queues.map(|queues| format!(" pf_q_num={queues}"));
        let options = [mode, queues].into_iter().flatten().collect::<String>();
        (!options.is_empty()).then(|| format!("options {}{options}\n", kind.driver()))
    };
    let lines: String = types.iter().filter_map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("# Written by kae-operator; its KAEPolicy is the place for changes.\n{lines}"),
    }
}

/// Modes that a user of the engines can work with, from option files other than this program's.
pub(super) fn chosen_modes(node: &Node, types: &[EngineType]) -> BTreeMap<EngineType, u8> {
    let mut chosen = BTreeMap::new();
    for directory in OPTION_DIRECTORIES {
        for name in node.host().list(directory).unwrap_or_default() {
            let path = format!("{directory}/{name}");
            if !name.ends_with(".conf") || path == OPTIONS_FILE {
                continue;
            }
            let Ok(text) = fs::read_to_string(node.place(&path)) else { continue };
            for &kind in types {
                if let Some(mode) = mode_in(&text, kind.driver()) {
                    chosen.insert(kind, mode);
                }
            }
        }
    }
    chosen.retain(|_, mode| *mode != 0);
    chosen
}

fn mode_in(text: &str, module: &str) -> Option<u8> {
    let options = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("options") && words.next() == Some(module)).then_some(words)
    });
    options.flatten().filter_map(|word| word.strip_prefix("uacce_mode=")?.parse().ok()).next_back()
}

/// Writes the options file, or removes it where there is nothing to say.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn write_options(node: &Node, content: &str) -> Result<(), DriverError> {
    match content.is_empty() {
        true => node.remove(OPTIONS_FILE).map(|_| ()),
        false => node.write(OPTIONS_FILE, content),
    }
}

/// Unloads what is loaded of the chain, from the top. What is part of the kernel stays.
///
/// # Errors
/// The module that could not be unloaded; those above it are gone by then.
pub(super) fn unload(node: &Node, found: &Found) -> Result<(), ProgramError> {
    for name in modules_from_the_top() {
        if found.modules.get(name).is_some_and(|module| module.references.is_some()) {
            node.programs().run("rmmod", &[name])?;
        }
    }
    Ok(())
}

/// Loads a module and what it needs.
///
/// # Errors
/// What `modprobe` said.
pub(super) fn load(node: &Node, module: &str, parameters: &[String]) -> Result<(), ProgramError> {
    let mut arguments = vec![module];
    arguments.extend(parameters.iter().map(String::as_str));
    node.programs().run("modprobe", &arguments).map(|_| ())
}

/// Has the kernel's list of modules made anew.
///
/// # Errors
/// What `depmod` said.
pub(super) fn index(node: &Node, kernel: &str) -> Result<(), ProgramError> {
    node.programs().run("depmod", &["-a", kernel]).map(|_| ())
}

/// Files of the chain's modules, as `modprobe` would find them.
pub(super) fn files(node: &Node, kernel: &str) -> BTreeMap<&'static str, String> {
    let directory = format!("/lib/modules/{kernel}");
    let list =
        |name: &str| fs::read_to_string(node.place(&format!("{directory}/{name}"))).unwrap_or_default();
    let text = list("modules.dep") + &list("modules.builtin");
    let mut files = BTreeMap::new();
    for path in text.lines().map(|line| line.split(':').next().unwrap_or_default().trim()) {
        let name = path.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
        if let Some(module) = modules_from_the_top().find(|module| *module == name.replace('-', "_")) {
            let path = if path.starts_with('/') { path.to_owned() } else { format!("{directory}/{path}") };
            files.insert(module, path);
        }
    }
    files
}

/// The first module that these types need and the kernel has not.
pub(super) fn first_absent(node: &Node, kernel: &str, types: &[EngineType]) -> Option<&'static str> {
    let files = files(node, kernel);
    let needed = types.iter().map(|kind| kind.driver()).chain(SHARED_MODULES);
    needed.into_iter().find(|module| !files.contains_key(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_option_of_an_administrator_counts() {
        let text = "options hisi_hpre uacce_mode=1 pf_q_num=64\n# options hisi_hpre uacce_mode=0\noptions  hisi_hpre\tuacce_mode=2\n";
        assert_eq!(mode_in(text, "hisi_hpre"), Some(2));
        assert_eq!(mode_in(text, "hisi_zip"), None);
    }

    #[test]
    fn options_leave_an_administrators_mode_alone() {
        let types = [EngineType::Hpre, EngineType::Zip];
        let chosen = BTreeMap::from([(EngineType::Hpre, 1)]);
        assert!(options(&types, 2, &chosen, None).ends_with("changes.\noptions hisi_zip uacce_mode=2\n"));
        let with_queues = options(&types, 2, &chosen, Some(256));
        assert!(
            with_queues
                .contains("options hisi_hpre pf_q_num=256\noptions hisi_zip uacce_mode=2 pf_q_num=256")
        );
        assert_eq!(options(&types[..1], 2, &chosen, None), "");
    }
}
