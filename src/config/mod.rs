//! Floor 1: the config, from text with positions to a checked [`Config`].
//!
//! [`check`] is the way in. [`fields::FIELDS`] is the language: the parser, its hints, [`schema`] and
//! [`default_config`] all read it. Text becomes a tree in `syntax`, `reader` reads values of the tree and notes
//! problems, `pool` and `selector` know the rules of their objects, `entries` and `words` what single strings mean.

mod check;
mod document;
mod entries;
pub mod fields;
mod hint;
mod pool;
mod problem;
mod reader;
mod selector;
mod syntax;
mod types;
mod words;

#[cfg(test)]
mod tests;

pub use check::{Checked, Options, check};
pub use document::{default_config, schema};
pub use problem::{Effect, Problem, Severity};
pub use types::{
    AdditionalInfo, AllocationPolicy, Config, DeviceType, FunctionType, HealthPolicy, InfoTarget, LinkHealth,
    NamePattern, PfName, PoolConfig, RefusedPool, RootDevice, Selector, UacceView, VfioMode, WaitFor,
};
