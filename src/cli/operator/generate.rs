//! `kae-operator generate`.

use std::io::{self, Write as _};

use clap::Subcommand;

use super::yaml;
use crate::cli::Outcome;
use crate::operator::crd;

/// What is printed.
#[derive(Debug, Subcommand)]
pub(super) enum Generate {
    /// The definition of KAEPolicy
    Crd,
}

pub(super) fn generate(what: &Generate) -> Outcome {
    let document = match what {
        Generate::Crd => serde_json::to_value(crd::definition())?,
    };
    io::stdout().lock().write_all(yaml::document(&document).as_bytes())?;
    Ok(())
}
