//! Floor 4: the command line. `args` is what the user said; each subcommand's file is what it means.

mod args;
mod check;
mod demo;
mod devices;
mod explain;
mod generate;
mod go_flags;
mod host;
mod manifests;
#[cfg(feature = "operator")]
pub mod operator;
mod run;
mod snapshot;
mod status;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::config::{self, Checked};
use args::{Arguments, Command};

/// The command with all its arguments, for completions, the man page and the README.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// How a subcommand ends when it does not succeed.
#[derive(Debug)]
enum Failure {
    /// The input is bad: exit code 2.
    Input(String),
    /// Something failed: exit code 1.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

type Outcome = Result<(), Failure>;

/// Runs the program: 0 done, 1 failed, 2 the input is bad.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (arguments, ignored) = go_flags::translate(arguments);
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            // Nothing better can be done when even that cannot be printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let mut out = io::stdout().lock();
    let outcome = match parsed.command.unwrap_or(Command::Run(parsed.run)) {
        Command::Run(arguments) => {
            drop(out);
            return end("pcidp", run::run(&arguments, &ignored));
        }
        Command::Check(arguments) => check::check(&arguments, &mut out),
        Command::Devices(arguments) => devices::devices(&arguments, &mut out),
        Command::Explain(arguments) => explain::explain(&arguments, &mut out),
        Command::Status(arguments) => status::status(&arguments, &mut out),
        Command::Snapshot(arguments) => snapshot::snapshot(&arguments, &mut out),
        Command::Demo(arguments) => demo::demo(&arguments, &mut out),
        Command::Generate(what) => generate::generate(&what, &mut out),
    };
    end("pcidp", outcome.and_then(|()| Ok(out.flush()?)))
}

fn end(program: &str, outcome: Outcome) -> ExitCode {
    let (text, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        // `pcidp devices | head` is no failure.
        Err(Failure::Failed(error)) if is_broken_pipe(&error) => return ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => (format!("{program}: {error:#}"), 1),
        Err(Failure::Input(text)) => (text, 2),
    };
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
    ExitCode::from(code)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A config file and what was found in it.
struct ConfigFile {
    path: String,
    text: String,
    checked: Checked,
}

impl ConfigFile {
    fn read(path: &Path, prefix: &str) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let text = std::fs::read(path).map_err(|error| {
            Failure::Input(format!("{shown}: {error}; name a config with --config-file, or mount one there"))
        })?;
        Ok(Self::parse(shown, String::from_utf8_lossy(&text).into_owned(), prefix))
    }

    fn parse(path: String, text: String, prefix: &str) -> Self {
        let checked = config::check(&text, &config::Options { default_prefix: prefix, path: &path });
        Self { path, text, checked }
    }

    /// Every problem as the user reads it, an empty line between two.
    fn problems(&self) -> String {
        let rendered = self.checked.problems.iter().map(|problem| problem.render(&self.path, &self.text));
        rendered.collect::<Vec<_>>().join("\n")
    }

    /// The config, where the file as a whole can be used.
    fn usable(self) -> Result<Self, Failure> {
        match self.checked.has_config() {
            true => Ok(self),
            false => Err(Failure::Input(self.problems())),
        }
    }
}
