//! The binary of the node plugin.

use std::process::ExitCode;

fn main() -> ExitCode {
    pcidp::cli::main(std::env::args_os())
}
