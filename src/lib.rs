//! `pcidp`: a Kubernetes device plugin for PCI devices.
//!
//! The library is built in floors; a module imports from its own floor or from below
//! (`tests/house.rs` reads the `use` lines and proves it).

pub mod cli;
pub mod config;
pub mod daemon;
pub mod handout;
pub mod host;
pub mod kubelet;
pub mod model;
pub mod observe;
#[cfg(feature = "operator")]
pub mod operator;
pub mod pool;
pub mod select;
