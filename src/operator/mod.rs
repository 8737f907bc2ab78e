//! The cluster side: a `KAEPolicy` installs the driver and the plugin, and keeps them right.

pub mod driver;
