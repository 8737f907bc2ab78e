//! Floor 2: the only reader of a machine.

mod net;
pub mod netlink;
mod pci;
mod rdma;
mod root;
mod routes;
mod scan;
mod uacce;
mod userspace;
mod wanted;

pub use root::{DeviceNumber, HostRoot, NodeKind};
pub use scan::{find, refresh, scan};
pub use wanted::Wanted;
