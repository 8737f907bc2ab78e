//! `kae-operator generate`.

use std::io::{self, Write as _};

use clap::Subcommand;
use serde_json::json;

use super::yaml;
use crate::cli::Outcome;
use crate::operator::{crd, rbac};

/// What is printed.
#[derive(Debug, Subcommand)]
pub(super) enum Generate {
    /// The definition of KAEPolicy
    Crd,
    /// What the operator may do: the rules of its ClusterRole, and of the Role in its own namespace
    Rbac,
}

pub(super) fn generate(what: &Generate) -> Outcome {
    let document = match what {
        Generate::Crd => serde_json::to_value(crd::definition())?,
        Generate::Rbac => json!({ "cluster": rbac::cluster_rules(), "namespace": rbac::namespace_rules() }),
    };
    io::stdout().lock().write_all(yaml::document(&document).as_bytes())?;
    Ok(())
}
