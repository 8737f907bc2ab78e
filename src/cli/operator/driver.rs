//! `kae-operator driver`: what the pod of the driver runs on its node.

use clap::Subcommand;

use crate::cli::Outcome;

/// What is to be done with the driver of this node.
#[derive(Debug, Subcommand)]
pub(super) enum Driver {}

pub(super) fn driver(command: &Driver) -> Outcome {
    match *command {}
}
