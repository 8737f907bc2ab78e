//! Floor 3: the life of the plugin. One task owns the state; [`step`] says what to do, [`run`] does it.

mod cdi;
mod device_info;
mod endpoint;
mod files;
mod holders;
mod link;
mod options;
mod pace;
mod registrar;
mod report;
mod run;
mod service;
mod source;
mod step;
mod uacce_view;

pub use cdi::{CDI_DIRECTORY, CdiDirectory};
pub use device_info::{DEVICE_INFO_DIRECTORY, DeviceInfoDirectory};
pub use link::{AFTER_LOSS, CLOSES_AFTER, STREAM_LASTS, STREAM_LIMIT};
pub use options::{DEVICE_PLUGIN_DIRECTORY, Options, POD_RESOURCES_DIRECTORY, RunError, SCAN_EVERY};
pub use registrar::Manner;
pub use run::run;
pub use service::{Outputs, PoolService};
pub use source::{ConfigSource, Loaded, Place, SourceError, over};
pub use step::{Action, Event, PoolState, State, step};
pub use uacce_view::UacceViews;
