//! Any bytes as a kernel's answer over netlink: they are read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcidp::host::netlink::{Answered, Netlink};
use pcidp::host::rtnetlink;

fuzz_target!(|bytes: &[u8]| {
    let answer = Answered(bytes);
    for link in answer.links().into_iter().flatten() {
        assert!(link.lower != Some(link.index) && link.master != Some(0), "{link:?}");
    }
    for route in answer.default_routes().into_iter().flatten() {
        assert!(route.interfaces.len() <= bytes.len(), "{route:?}");
    }
    let versions = answer.versions("pci/0000:17:00.0").unwrap_or_default();
    assert!(versions.keys().chain(versions.values()).all(|text| !text.contains('\0')), "{versions:?}");
    let _ = answer.eswitch_mode("pci/0000:17:00.0");
    let _ = answer.enables_rdma("pci/0000:17:00.0");
    // The same bytes, as what is heard while nobody asks.
    let _ = rtnetlink(bytes);
});
