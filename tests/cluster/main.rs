//! A real cluster on recorded hosts: `README.md` beside this file tells what it is and how to run it.
#![expect(clippy::print_stdout, reason = "a test tells how it went")]

mod host;
mod kit;
mod node;
mod outcome;
mod plugin;
mod pods;
mod scenarios;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use pcidp::host::recording::Recording;

use node::{Kit, Node};
use outcome::{Failure, Outcome};

/// One test: a sentence, and what proves it.
struct Scenario {
    name: &'static str,
    run: fn(&Node) -> Outcome,
}

macro_rules! scenarios {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$(Scenario { name: stringify!($name), run: scenarios::$module::$name }),*]
    };
}

/// Hosts of `testdata/hosts`, each booted once, and what is tried on it, in this order.
const SUITE: &[(&str, &[Scenario])] = &[
    (
        "demo",
        scenarios![
            quick_start::the_quick_start_gives_a_pod_of_each_kind_its_devices,
            manifests::the_plugin_runs_without_any_right,
            manifests::pod_security_objects_to_nothing_but_host_network_and_host_paths,
            manifests::a_node_made_after_the_plugin_started_is_handed_over_all_the_same,
            chart::an_upgrade_of_the_chart_never_drops_a_device,
        ],
    ),
    (
        "eight-vfs",
        scenarios![
            drop_in::in_the_reference_daemonset_only_the_image_changes,
            drop_in::in_the_daemonset_of_sriov_network_operator_only_the_image_changes,
            multus::multus_moves_netdevs_of_two_pools_into_a_pod_and_they_come_back,
            scarce::of_two_pods_that_want_the_last_device_one_waits_until_it_is_free,
            scarce::a_pod_that_asks_for_too_many_stays_pending,
            books::podresources_and_the_checkpoint_name_our_ids,
            kubelet::a_killed_kubelet_finds_its_devices_again_and_gives_none_twice,
        ],
    ),
];

fn main() -> ExitCode {
    let mut asked = Vec::new();
    let mut boot = None;
    let mut list = false;
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => list = true,
            "--boot" => boot = Some(arguments.next().unwrap_or_default()),
            // Those of Rust's own test harness that take a value; none has a meaning here.
            "--test-threads" | "--format" | "--color" | "--skip" | "--logfile" | "-Z" => {
                drop(arguments.next());
            }
            flag if flag.starts_with('-') => {}
            name => asked.push(name.to_owned()),
        }
    }
    let is_asked =
        |scenario: &&Scenario| asked.is_empty() || asked.iter().any(|name| scenario.name.contains(name));
    let all: Vec<&Scenario> = SUITE.iter().flat_map(|(_, scenarios)| *scenarios).filter(is_asked).collect();
    if list {
        for scenario in all {
            println!("{}: test", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    let kit = match kit::prepare() {
        Ok(kit) => kit,
        Err(why) => {
            for scenario in &all {
                println!("test {} ... skipped: {why}", scenario.name);
            }
            println!("cluster suite: 0 passed, 0 failed, {} skipped: {why}", all.len());
            return ExitCode::SUCCESS;
        }
    };
    if let Some(file) = boot {
        return by_hand(Path::new(&file), &kit);
    }
    let mut tally = Tally::default();
    let started = Instant::now();
    for (host, scenarios) in SUITE {
        let scenarios: Vec<&Scenario> = scenarios.iter().filter(is_asked).collect();
        if !scenarios.is_empty() {
            run_on(host, &scenarios, &kit, &mut tally);
        }
    }
    let seconds = started.elapsed().as_secs();
    println!("cluster suite: {} passed, {} failed, 0 skipped, {seconds} s", tally.passed, tally.failed);
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

fn run_on(host: &str, scenarios: &[&Scenario], kit: &Kit, tally: &mut Tally) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/hosts/{host}.host"));
    let started = Instant::now();
    let mut node = match boot(&path, kit) {
        Ok(node) => node,
        Err(why) => {
            tally.failed += scenarios.len();
            println!("host {host} ... FAILED: the harness failed: {why}");
            return;
        }
    };
    println!("host {host} is up, {:.1} s", started.elapsed().as_secs_f32());
    for scenario in scenarios {
        let started = Instant::now();
        node.next_scenario();
        let outcome = (scenario.run)(&node);
        let seconds = started.elapsed().as_secs_f32();
        match outcome {
            Ok(()) => {
                tally.passed += 1;
                println!("test {} ... ok, {seconds:.1} s", scenario.name);
            }
            Err(failure) => {
                tally.failed += 1;
                let (who, what) = blame(failure, &node);
                println!("test {} ... FAILED after {seconds:.1} s: {who} failed: {what}", scenario.name);
                println!("{}", node.evidence());
            }
        }
        if let Err(failure) = plugin::clean_up(&node) {
            println!("cleaning up after {}: {failure:?}", scenario.name);
        }
    }
}

fn boot(path: &Path, kit: &Kit) -> Result<Node, String> {
    let recording = Recording::open(path).map_err(|error| error.to_string())?;
    Node::boot(&recording, kit).map_err(|failure| match failure {
        Failure::Product(why) | Failure::Harness(why) => why,
    })
}

fn blame(failure: Failure, node: &Node) -> (&'static str, String) {
    match failure {
        Failure::Harness(what) => ("the harness", what),
        Failure::Product(what) => match node.is_well() {
            Ok(()) => ("the product", what),
            Err(why) => ("the harness", format!("{what}\nThe node is not well: {why}")),
        },
    }
}

/// Boots a host for a person who wants to look around.
fn by_hand(path: &Path, kit: &Kit) -> ExitCode {
    match boot(path, kit) {
        Ok(node) => {
            println!("The host is up. Enter it with\n\n  {}\n\nPress Enter here to end it.", node.entry());
            let _ = io::stdin().read_line(&mut String::new());
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("the harness failed: {why}");
            ExitCode::FAILURE
        }
    }
}
