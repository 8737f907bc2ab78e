//! The binary of the operator.

use std::process::ExitCode;

fn main() -> ExitCode {
    pcidp::cli::operator::main(std::env::args_os())
}
