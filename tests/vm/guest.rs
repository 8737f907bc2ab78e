//! The side in the machine: runs scenarios one after another, each as a process of its own.

use std::fs::{self, File};
use std::io;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::scenarios;

/// Set in the machine: to `all` for whoever starts the scenarios, to a scenario's name for its process.
pub(crate) const MARK: &str = "PCIDP_VM_GUEST";
pub(crate) const ALL: &str = "all";
/// Names of scenarios, one a line.
pub(crate) const ORDERS: &str = "scenarios";
/// One line for each scenario that ended: `NAME VERDICT`.
pub(crate) const RESULTS: &str = "results";
/// What scenarios leave for the computer.
pub(crate) const OUT: &str = "/out";

pub(crate) const PASSED: &str = "passed";
pub(crate) const PRODUCT: &str = "product";
pub(crate) const MACHINE: &str = "machine";
pub(crate) const ENDLESS: &str = "endless";

/// How long one scenario may take.
const LIMIT: Duration = Duration::from_secs(300);
/// The exit code of a scenario whose machine failed it; a panic gives 101.
const MACHINE_FAILED: u8 = 3;

pub(crate) fn main(mark: &str) -> ExitCode {
    if mark != ALL {
        return one(mark);
    }
    let orders = fs::read_to_string(ORDERS).unwrap();
    let mut results = String::new();
    for name in orders.lines() {
        let start = Instant::now();
        let verdict = verdict(name).unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
        results += &format!("{name} {verdict} {:.1}\n", start.elapsed().as_secs_f32());
        // Each at once: the machine may die in the next one.
        fs::write(format!("{OUT}/{RESULTS}"), &results).unwrap();
    }
    ExitCode::SUCCESS
}

fn verdict(name: &str) -> io::Result<&'static str> {
    let log = File::create(format!("{OUT}/{name}.log"))?;
    let child = Command::new(std::env::current_exe()?)
        .env(MARK, name)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let Some(status) = wait(child)? else { return Ok(ENDLESS) };
    Ok(match status.code() {
        Some(0) => PASSED,
        Some(code) if code == i32::from(MACHINE_FAILED) => MACHINE,
        _ => PRODUCT,
    })
}

/// Waits for the process, and ends it after the limit.
fn wait(child: Child) -> io::Result<Option<ExitStatus>> {
    let id = child.id();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let mut child = child;
        // Nobody listens any more where it came too late.
        let _ = ended.send(child.wait());
    });
    match end.recv_timeout(LIMIT) {
        Ok(status) => status.map(Some),
        Err(_) => {
            Command::new("kill").args(["-9", &id.to_string()]).status()?;
            Ok(None)
        }
    }
}

fn one(name: &str) -> ExitCode {
    let Some(scenario) = scenarios().find(|scenario| scenario.name() == name) else {
        println!("there is no scenario {name}");
        return ExitCode::from(MACHINE_FAILED);
    };
    let outcome = Machine::fresh().and_then(|machine| (scenario.run)(&machine));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            println!("{trouble}");
            ExitCode::from(MACHINE_FAILED)
        }
    }
}
