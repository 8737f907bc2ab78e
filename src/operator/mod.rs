//! The cluster side: a `KAEPolicy` installs the driver and the plugin, and keeps them right.

pub mod crd;
pub mod driver;
pub mod engine;
pub mod labels;
pub mod render;
