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
#[cfg(feature = "operator")]
mod driver;
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
#[cfg(feature = "operator")]
mod operator_chart;
#[cfg(feature = "operator")]
mod operator_image;
mod page;
mod peer;
mod prefer;
#[path = "../go/program.rs"]
mod program;
mod properties;
mod readme;
mod runtime;
mod selection;
mod step;
