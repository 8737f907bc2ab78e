//! The binary of the node plugin.

fn main() {}
