//! Over real sockets.

mod authority;
mod endpoint;
mod generated;
mod go;
mod holders;
mod memory;
mod register;
mod shelf;
mod stand_in;
mod watch;
