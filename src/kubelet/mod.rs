//! Floor 2: the only speaker of gRPC, as a server towards the kubelet and as its client.

pub mod api;
mod connection;
mod endpoint;
mod holders;
mod pool;
mod register;
mod registry;
mod server;
mod sibling;
mod socket;
pub mod stand_in;
mod watch;

pub use connection::{ConnectError, Connection};
pub use endpoint::{StreamEvent, serve};
pub use holders::{
    CHECKPOINT, Holder, Holders, HoldersError, Holding, Teller, by_resource, holders,
    holders_from_podresources, holdings_from_checkpoint,
};
pub use pool::{Advertised, DeviceList, PluginOptions, Pool, Refusal};
pub use register::{API_VERSION, KUBELET_SOCKET, RegisterError, Registration, register};
pub use registry::{Verdict, serve_registry};
pub use sibling::{outlive, siblings};
pub use socket::{
    BindError, Instance, LONGEST_PATH, OwnSocket, Place, is_sibling, remove_stale, socket_path,
};
pub use watch::{QUICK_LOOK, SLOW_LOOK, SocketIdentity, SocketWatch, Sockets};

#[cfg(test)]
mod tests;
