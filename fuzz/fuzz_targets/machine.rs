//! Any recorded host as the machine: it is scanned, and its devices are put into pools, whatever its files say.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::{Corpus, fuzz_target};
use pcidp::config::{Config, Options, check};
use pcidp::host::recording::{Entry, Recording};
use pcidp::host::{Wanted, find, refresh, scan};
use pcidp::pool::assign;

/// More entries than this take too long to be laid out a thousand times.
const MOST_ENTRIES: usize = 400;

/// Asks for whatever can be asked for.
fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/config/good/every-addition.json");
        let text = std::fs::read_to_string(path).expect("the config is in testdata");
        check(&text, &Options { default_prefix: "x.io", path: "config.json" }).config
    })
}

fuzz_target!(|text: &str| -> Corpus {
    let Ok(recording) = Recording::parse(text) else { return Corpus::Reject };
    if recording.entries().count() > MOST_ENTRIES {
        return Corpus::Reject;
    }
    let host = match recording.lay_out() {
        Ok(host) => host,
        // Names that differ in the text and not on the disk, or no room.
        Err(_) => return Corpus::Reject,
    };
    let config = config();
    for wanted in [Wanted::everything(), Wanted::of(config)] {
        let inventory = scan(&host, &wanted);
        for device in inventory.devices() {
            let _ = refresh(&host, device);
            let _ = find(&host, device.address);
        }
        let pools = assign(config, &inventory);
        let listed: usize = pools.pools.iter().map(|pool| pool.members.len()).sum();
        assert!(listed <= inventory.devices().len() * config.pools.len());
    }
    // What lies there is a machine only with a list of functions.
    let is_machine = |(path, _): (&str, &Entry)| path.starts_with("/sys/bus/pci/devices/");
    if recording.entries().any(is_machine) { Corpus::Keep } else { Corpus::Reject }
});
