//! Over real sockets.

mod authority;
mod endpoint;
mod generated;
mod go;
mod holders;
mod memory;
#[path = "../../../tests/go/program.rs"]
mod program;
mod register;
mod shelf;
mod stand_in;
mod watch;
