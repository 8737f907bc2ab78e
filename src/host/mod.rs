//! Floor 2: the only reader of a machine.

pub mod netlink;
pub mod recording;
mod root;

pub use root::{DeviceNumber, HostRoot, NodeKind};
