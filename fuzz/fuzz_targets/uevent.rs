//! Any bytes as an event of the kernel: what names none of the subsystems that matter wakes nobody.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcidp::host::uevent;

fuzz_target!(|bytes: &[u8]| {
    if uevent(bytes).is_some() {
        let mut fields = bytes.split(|&byte| byte == 0);
        assert!(fields.next().is_some_and(|first| first.contains(&b'@')));
        assert!(fields.any(|field| field.starts_with(b"SUBSYSTEM=")));
    }
});
