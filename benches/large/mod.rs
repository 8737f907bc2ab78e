//! The large node that is measured: 8 adapters with 127 virtual functions each, and 50 pools with 2 selectors each.

use std::fmt::Write as _;

use pcidp::config::{self, Config};
use pcidp::host::recording::Recording;
use pcidp::host::recording::generate::many_vfs;

const ADAPTERS: usize = 8;
const FUNCTIONS: usize = 127;
/// How many devices the node has.
pub(crate) const DEVICES: usize = ADAPTERS * FUNCTIONS;
/// How many pools they are in.
pub(crate) const POOLS: usize = 50;

/// The machine.
pub(crate) fn recording() -> Recording {
    many_vfs(ADAPTERS as u8, FUNCTIONS as u8).unwrap()
}

/// Every device is in one of the pools: those for guests by the first selector of a pool, the others by the second.
pub(crate) fn config_text() -> String {
    let mut text = "{\n  \"resourceList\": [".to_owned();
    for pool in 0..POOLS {
        let functions = part(pool);
        let comma = if pool == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}
    {{
      "resourceName": "pool_{pool:02}",
      "selectors": [
        {{ "vendors": ["8086"], "devices": ["1889"], "drivers": ["vfio-pci"], "pfNames": [{functions}] }},
        {{ "vendors": ["8086"], "devices": ["1889"], "drivers": ["iavf"], "pfNames": [{functions}] }}
      ]
    }}"#
        )
        .unwrap();
    }
    text + "\n  ]\n}\n"
}

/// What is written there.
pub(crate) fn config(text: &str) -> Config {
    let checked = config::check(text, &config::Options { default_prefix: "intel.com", path: "config.json" });
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    checked.config
}

/// The fiftieth part of all functions, as entries of `pfNames`.
fn part(pool: usize) -> String {
    let first = pool * DEVICES / POOLS;
    let last = (pool + 1) * DEVICES / POOLS - 1;
    let entry = |adapter: usize| {
        let from = first.max(adapter * FUNCTIONS) % FUNCTIONS;
        let to = last.min((adapter + 1) * FUNCTIONS - 1) % FUNCTIONS;
        format!("\"ens{}f0#{from}-{to}\"", adapter + 1)
    };
    let entries: Vec<_> = (first / FUNCTIONS..=last / FUNCTIONS).map(entry).collect();
    entries.join(", ")
}
