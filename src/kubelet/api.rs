//! Generated messages, clients and servers of the kubelet's three gRPC APIs.
//!
//! The source is `proto/`; `PCIDP_BLESS=1 cargo test generated_code` writes `gen/` again.

#![expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code has its own habits"
)]

/// `v1beta1`: registration at the kubelet, and what the kubelet asks of a plugin.
pub mod deviceplugin {
    include!("gen/deviceplugin_v1beta1.rs");
}

/// `pluginregistration`: the kubelet finds a socket in `plugins_registry` and asks it who it is.
pub mod pluginregistration {
    include!("gen/pluginregistration_v1.rs");
}

/// `v1` of podresources: which pod holds which device.
pub mod podresources {
    include!("gen/podresources_v1.rs");
}
