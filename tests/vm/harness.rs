//! The side on a computer: boots the machine with this program in it, and tells what became of each scenario.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use super::{Boot, Scenario, canonical, guest, recordings, scenarios};

/// Exit codes of `tests/vm/run` and `tests/vm/setup`.
const CANNOT_HAVE_ONE: i32 = 77;
/// A scenario may take long, but not all of them do.
const SECONDS_FOR_ALL: usize = 300;
const SECONDS_FOR_EACH: usize = 90;
const ATTEMPTS: usize = 2;
/// How much of a log is worth a look.
const LAST_LINES: usize = 80;

pub(crate) fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One machine at a time.
    arguments.test_threads = Some(1);
    let is_wanted = env::var_os("PCIDP_VM").is_some_and(|value| value == "1");
    let trials = scenarios().map(|scenario| {
        let runner = move || outcome(scenario);
        Trial::ignorable_test(scenario.name(), runner).with_ignored_flag(!is_wanted)
    });
    if is_wanted && !arguments.list {
        println!("vm: preparing the machine; the first time, this takes some minutes");
        SETUP.get_or_init(setup);
    }
    let conclusion = libtest_mimic::run(&arguments, trials.chain(proofs()).collect());
    if !arguments.list && conclusion.num_ignored > 0 {
        let skipped = |boot: &OnceLock<Run>| match boot.get() {
            Some(Err(Unbooted::Skipped(reason))) => Some(reason.clone()),
            _ => None,
        };
        let given_up = || GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = BOOTS.iter().find_map(skipped).or_else(given_up);
        let reason = reason.unwrap_or_else(|| "PCIDP_VM=1 is not set".to_owned());
        println!("vm: SKIPPED {} scenarios: {reason}\n", conclusion.num_ignored);
    }
    conclusion.exit_code()
}

/// Tests of the comparison itself, which need no machine.
fn proofs() -> [Trial; 2] {
    let proof = |name: &str, proof: fn()| {
        Trial::test(name, move || {
            proof();
            Ok(())
        })
    };
    [
        proof(
            "canonical::another_order_of_arrival_is_no_difference",
            canonical::proof::another_order_of_arrival_is_no_difference,
        ),
        proof(
            "canonical::any_other_change_is_a_difference",
            canonical::proof::any_other_change_is_a_difference,
        ),
    ]
}

/// What became of the scenarios of one boot: verdicts and seconds by name.
type Run = Result<HashMap<String, (String, String)>, Unbooted>;

#[derive(Debug, Clone)]
enum Unbooted {
    /// This computer cannot have such a machine, or it does not boot.
    Skipped(String),
    /// This harness did something wrong.
    Failed(String),
}

static SETUP: OnceLock<Result<PathBuf, Unbooted>> = OnceLock::new();
/// Why a scenario was given up.
static GIVEN_UP: Mutex<Option<String>> = Mutex::new(None);
static BOOTS: [OnceLock<Run>; 3] = [const { OnceLock::new() }; 3];

impl Boot {
    fn name(self) -> &'static str {
        match self {
            Self::Iommu => "iommu",
            Self::NoIommu => "noiommu",
            Self::Software => "software",
        }
    }

    fn run(self) -> &'static Run {
        BOOTS[self as usize].get_or_init(|| boot(self))
    }

    /// What goes into the machine and what comes out of it; kept for a look at it.
    fn directory(self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("vm").join(self.name())
    }
}

fn outcome(scenario: &Scenario) -> Result<Completion, Failed> {
    let verdicts = match scenario.boot.run() {
        Ok(verdicts) => verdicts,
        Err(Unbooted::Skipped(reason)) => return Ok(Completion::ignored_with(reason)),
        Err(Unbooted::Failed(reason)) => return Err(format!("the harness failed: {reason}").into()),
    };
    let out = scenario.boot.directory().join("out");
    let log = last_lines(&out.join(format!("{}.log", scenario.name())));
    let verdict = verdicts.get(scenario.name());
    let text = match verdict.map(|(verdict, seconds)| (verdict.as_str(), seconds)) {
        Some((guest::PASSED, _)) => return Ok(Completion::Completed),
        Some((guest::PRODUCT, _)) => format!("pcidp failed:\n{log}"),
        Some((guest::ENDLESS, seconds)) => format!("pcidp failed: no end within {seconds} s:\n{log}"),
        Some((guest::MACHINE, _)) => return Ok(given_up("the machine did not do its part", &log)),
        _ => return Ok(given_up("the machine ended before the scenario did", &log)),
    };
    Err(format!("{text}\n(see {})", out.display()).into())
}

/// A scenario that two machines have failed: it says nothing of `pcidp`.
fn given_up(what: &str, log: &str) -> Completion {
    println!("vm: the harness failed twice: {what}:\n{log}");
    let reason = format!("the harness failed twice: {what}");
    *GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
    Completion::ignored_with(reason)
}

fn boot(boot: Boot) -> Run {
    let failed = |what: &str, error: io::Error| Unbooted::Failed(format!("{what}: {error}"));
    let machine = SETUP.get_or_init(setup).as_ref().map_err(Clone::clone)?;
    let mut names = selected(boot);
    let directory = boot.directory();
    let out = directory.join("out");
    prepare(&directory).map_err(|error| failed("cannot prepare the machine's files", error))?;
    let mut verdicts = HashMap::new();
    // An emulator may die under whoever is in it, and a machine may not do its part: such scenarios get another one.
    for attempt in 1..=ATTEMPTS {
        order(&directory, &names).map_err(|error| failed("cannot write what to run", error))?;
        let limit = SECONDS_FOR_ALL + SECONDS_FOR_EACH * names.len();
        let output = Command::new(program("run"))
            .args([directory.join("cmd"), out.clone()])
            .env("VM_MACHINE", machine)
            .env("VM_LIMIT", limit.to_string())
            .env("VM_IOMMU", if boot == Boot::NoIommu { "none" } else { "intel" })
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed("tests/vm/run", error))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        verdicts.extend(parse(&fs::read_to_string(out.join(guest::RESULTS)).unwrap_or_default()));
        names.retain(|name| verdicts.get(*name).is_none_or(|(verdict, _)| verdict == guest::MACHINE));
        if names.is_empty() {
            return Ok(verdicts);
        }
        println!("vm: the machine failed {names:?} (attempt {attempt} of {ATTEMPTS}): {complaint}");
    }
    match verdicts.is_empty() {
        true => Err(Unbooted::Skipped(format!("the machine does not boot; see {}", out.display()))),
        false => Ok(verdicts),
    }
}

/// Builds the machine where it is not there yet.
fn setup() -> Result<PathBuf, Unbooted> {
    let output = Command::new(program("setup")).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Unbooted::Failed(format!("tests/vm/setup: {error}")))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().last().unwrap_or("no word of it").to_owned();
    match output.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        Some(CANNOT_HAVE_ONE) => Err(Unbooted::Skipped(last)),
        _ => Err(Unbooted::Failed(format!("tests/vm/setup: {}\n{complaint}", output.status))),
    }
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm").join(name)
}

/// The scenarios of one boot that the command line asks for.
fn selected(boot: Boot) -> Vec<&'static str> {
    let arguments = Arguments::from_args();
    let is_match = |name: &str, word: &String| match arguments.exact {
        true => name == word,
        false => name.contains(word.as_str()),
    };
    scenarios()
        .filter(|scenario| scenario.boot == boot)
        .map(Scenario::name)
        .filter(|name| arguments.filter.as_ref().is_none_or(|word| is_match(name, word)))
        .filter(|name| !arguments.skip.iter().any(|word| is_match(name, word)))
        .collect()
}

/// The directory that the guest sees: both programs, and the kept recordings.
fn prepare(directory: &Path) -> io::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    let command = directory.join("cmd");
    let kept = command.join(recordings::KEPT);
    fs::create_dir_all(&kept)?;
    fs::create_dir_all(directory.join("out"))?;
    strip(&env::current_exe()?, &command.join("scenarios-of-vm"))?;
    strip(Path::new(env!("CARGO_BIN_EXE_pcidp")), &command.join("pcidp"))?;
    for entry in fs::read_dir(hosts())? {
        let path = entry?.path();
        fs::copy(&path, kept.join(path.file_name().unwrap_or_default()))?;
    }
    if env::var_os("PCIDP_VM_RECORD").is_some() {
        fs::write(command.join(recordings::RECORD), "")?;
    }
    // From memory: every page of a program is a question to the host otherwise.
    let text = format!(
        "#!/bin/sh\ncp /cmd/pcidp /cmd/scenarios-of-vm /run/ && {}={} exec /run/scenarios-of-vm\n",
        guest::MARK,
        guest::ALL
    );
    let run = command.join("run");
    fs::write(&run, text)?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755))
}

/// Tells the guest what to run.
fn order(directory: &Path, names: &[&str]) -> io::Result<()> {
    fs::write(directory.join("cmd").join(guest::ORDERS), names.join("\n"))?;
    match fs::remove_file(directory.join("out").join(guest::RESULTS)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A copy without debug information: a tenth of the size, and the guest has little memory.
fn strip(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("strip").arg("-o").args([to, from]).status()?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| io::Error::other(format!("strip {}: {status}", from.display())))
}

fn hosts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/hosts")
}

fn parse(results: &str) -> HashMap<String, (String, String)> {
    let words = results.lines().filter_map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        Some((words.next()?, (words.next()?, words.next()?)))
    });
    words.collect()
}

fn last_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
