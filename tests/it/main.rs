//! Tests of the whole: recorded hosts, real sockets, real processes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod allocate;
mod answers;
mod cdi;
mod chaos;
mod cli;
mod config;
mod deployments;
mod devlink;
mod discovery;
mod events;
mod house;
mod kae;
mod kinds;
mod least_privilege;
mod life;
mod live;
mod logs;
mod machine;
mod names;
mod node;
mod observe;
mod observed;
mod offer;
mod page;
mod peer;
mod prefer;
mod properties;
mod readme;
mod runtime;
mod selection;
mod step;
