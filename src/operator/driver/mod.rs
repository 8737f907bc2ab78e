//! The engine that installs, checks and removes the KAE driver on a node. It knows a directory that is the node's root,
//! and the programs of that root; it speaks to no cluster, and to no network on its own.

mod busy;
mod check;
mod engine;
mod error;
mod former;
mod found;
mod functions;
mod hold;
mod install;
mod modules;
mod node;
mod payload;
mod permissions;
mod programs;
mod record;
mod remove;
mod system;
mod watch;

pub use busy::Holder;
pub use check::{Checked, Problem, check};
pub use engine::{EngineType, ParseEngineTypeError};
pub use error::{DriverError, FunctionsError};
pub use hold::{hold, ready, wait};
pub use install::{InstallPolicy, Request, Tell, install};
pub use modules::UacceMode;
pub use node::{Node, OPTIONS_FILE, RECORD_FILE, RULES_FILE, RUN_DIRECTORY};
pub use permissions::Permissions;
pub use programs::{ProgramError, Programs, Way, become_program};
pub use record::{NotReady, Ready, Record};
pub use remove::remove;
