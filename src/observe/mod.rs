//! Floor 3: what the plugin says of itself.

pub mod log;
