//! `pcidp generate`.

use std::io::Write;

use super::args::Generate;
use super::{Outcome, command, manifests};
use crate::config;

pub(super) fn generate(what: &Generate, out: &mut dyn Write) -> Outcome {
    match what {
        Generate::Config => out.write_all(config::default_config().as_bytes())?,
        Generate::Schema => writeln!(out, "{}", serde_json::to_string_pretty(&config::schema())?)?,
        Generate::Manifests(arguments) => manifests::manifests(arguments, out)?,
        Generate::Completions { shell } => {
            // It panics when it cannot write, so it writes to memory.
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command(), "pcidp", &mut text);
            out.write_all(&text)?;
        }
        Generate::Man => clap_mangen::Man::new(command()).render(out)?,
    }
    Ok(())
}
