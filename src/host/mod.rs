//! Floor 2: the only reader of a machine.

mod auxiliary;
mod ddptool;
mod devlink;
mod directory;
mod net;
pub mod netlink;
mod pci;
mod rdma;
pub mod recording;
mod root;
mod routes;
mod scan;
mod shared;
mod uacce;
mod userspace;
mod vdpa;
mod wanted;
mod watch;

pub use root::{DeviceNumber, HostRoot, NodeKind};
pub use scan::{exists, find, refresh, scan};
pub use shared::shared_nodes;
pub use wanted::Wanted;
pub use watch::{Seen, Watch, rtnetlink, uevent};
