//! The scenarios. Each is a function that takes a node; `main.rs` lists them by the host that they need.

pub(crate) mod quick_start;
