//! Over real sockets.

mod generated;
