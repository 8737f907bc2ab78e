//! Floor 3: the life of the plugin. One task owns the state; [`step`] says what to do, [`run`] does it.

mod cdi;
mod device_info;
mod endpoint;
mod files;
mod run;
mod service;
mod step;
mod uacce_view;

pub use cdi::{CDI_DIRECTORY, CdiDirectory};
pub use device_info::{DEVICE_INFO_DIRECTORY, DeviceInfoDirectory};
pub use run::{DEVICE_PLUGIN_DIRECTORY, Options, RunError, run};
pub use service::{Outputs, PoolService};
pub use step::{AFTER_LOSS, Action, Event, STREAM_LASTS, STREAM_LIMIT, State, step};
pub use uacce_view::UacceViews;
