//! The cluster side: a `KAEPolicy` installs the driver and the plugin, and keeps them right.

pub mod cluster;
pub mod crd;
pub mod definition;
pub mod driver;
pub mod engine;
pub mod events;
pub mod labels;
pub mod lease;
pub mod metrics;
pub mod rbac;
pub mod reconcile;
pub mod render;
mod run;
mod serve;
pub mod upgrade;

pub use run::{RunError, run};
