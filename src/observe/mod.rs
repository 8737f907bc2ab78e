//! Floor 3: what the plugin says of itself.

mod ask;
pub mod instances;
pub mod log;
mod metrics;
pub mod page;
mod report;
mod server;
pub mod web;

pub use ask::{Asker, Question};
pub use metrics::{ALLOCATED, Metrics, Reload};
pub use report::{
    ConfigReport, DeviceReport, HolderReport, NoteReport, PoolReport, RefusedReport, Report, ScanReport,
};
pub use server::Site;
pub use web::{serve_address, serve_socket};
