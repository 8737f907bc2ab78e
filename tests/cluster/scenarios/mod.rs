//! The scenarios. Each is a function that takes a node; `main.rs` lists them by the host that they need.

pub(crate) mod books;
pub(crate) mod cdi;
pub(crate) mod chain;
pub(crate) mod chart;
pub(crate) mod discovery;
pub(crate) mod drop_in;
pub(crate) mod engines;
pub(crate) mod go_plugin;
pub(crate) mod kubelet;
pub(crate) mod life;
pub(crate) mod machine;
pub(crate) mod manifests;
pub(crate) mod multus;
pub(crate) mod quick_start;
pub(crate) mod scarce;
pub(crate) mod subfunctions;
pub(crate) mod topology;
pub(crate) mod watcher;
