//! Any bytes as the checkpoint of the kubelet's device manager: it is read or refused.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use pcidp::kubelet::{CHECKPOINT, by_resource, holdings_from_checkpoint};

/// A directory in memory, where there is one.
fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let directory = place.join(format!("pcidp-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the checkpoint");
        directory
    })
}

fuzz_target!(|bytes: &[u8]| {
    let directory = directory();
    std::fs::write(directory.join(CHECKPOINT), bytes).expect("it can be written");
    match holdings_from_checkpoint(directory) {
        Ok(holdings) => {
            let ids: usize = holdings.iter().map(|holding| holding.ids.len()).sum();
            let told: usize = by_resource(&holdings).values().map(|devices| devices.len()).sum();
            assert!(told <= ids);
        }
        Err(error) => assert!(error.to_string().contains(CHECKPOINT)),
    }
});
