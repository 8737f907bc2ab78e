//! `kae-operator`: the cluster side. `args` is what the user said; each subcommand's file is what it means.

mod driver;
mod generate;
mod run;
mod yaml;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "kae-operator",
    version,
    about = "Installs and keeps the KAE driver and device plugin of a cluster"
)]
struct Arguments {
    #[command(flatten)]
    logs: run::Logs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow the KAEPolicy: label nodes, run the driver and the plugin
    Run(run::Run),
    /// The definition of KAEPolicy in the cluster
    #[command(subcommand)]
    Crds(run::Crds),
    /// The end of the KAEPolicy: when the operator is uninstalled
    #[command(subcommand)]
    Policy(run::Policy),
    /// On a node: installs, checks or removes the KAE driver
    #[command(subcommand)]
    Driver(driver::Driver),
    /// Print what ships beside the program
    #[command(subcommand)]
    Generate(generate::Generate),
}

/// Runs the program: 0 done, 1 failed, 2 the input is bad.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            // Nothing better can be done when even that cannot be printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    super::end(
        "kae-operator",
        parsed.logs.init().and_then(|()| match parsed.command {
            Command::Run(arguments) => run::run(arguments),
            Command::Crds(command) => run::crds(&command),
            Command::Policy(command) => run::policy(command),
            Command::Driver(command) => driver::driver(&command),
            Command::Generate(what) => generate::generate(&what),
        }),
    )
}
