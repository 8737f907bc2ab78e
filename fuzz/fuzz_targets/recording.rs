//! Any text as a recorded host: what is read is printed so that it is read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcidp::host::recording::Recording;

fuzz_target!(|text: &str| {
    match Recording::parse(text) {
        Ok(recording) => {
            let printed = recording.to_string();
            let again = Recording::parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(recording, again, "{printed}");
            assert_eq!(printed, again.to_string());
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty());
        }
    }
});
