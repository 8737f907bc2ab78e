//! A real cluster on recorded hosts: `README.md` beside this file tells what it is and how to run it.
#![expect(clippy::print_stdout, reason = "a test tells how it went")]

mod host;
mod kit;
mod machine;
mod node;
mod outcome;
mod plugin;
mod pods;
#[path = "../go/program.rs"]
mod program;
mod scenarios;

use std::env;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
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

/// A host of `testdata/hosts`, booted once, and what is tried on it, in this order.
struct Host {
    name: &'static str,
    /// What its kubelet has in its configuration besides.
    kubelet: &'static str,
    scenarios: &'static [Scenario],
}

const SUITE: &[Host] = &[
    Host {
        name: "eight-vfs",
        kubelet: "",
        scenarios: scenarios![
            drop_in::in_the_reference_daemonset_only_the_image_changes,
            drop_in::in_the_daemonset_of_sriov_network_operator_only_the_image_changes,
            multus::multus_moves_netdevs_of_two_pools_into_a_pod_and_they_come_back,
            scarce::of_two_pods_that_want_the_last_device_one_waits_until_it_is_free,
            scarce::a_pod_that_asks_for_too_many_stays_pending,
            books::podresources_and_the_checkpoint_name_our_ids,
            life::a_device_that_vanishes_under_a_pod_is_offered_no_more_until_it_is_back,
            life::a_pool_shrinks_to_nothing_and_comes_back_and_the_node_agrees,
            kubelet::a_killed_kubelet_finds_its_devices_again_and_gives_none_twice,
            go_plugin::from_the_go_plugin_to_ours_and_back_no_device_is_lost_or_given_twice,
            life::a_config_that_is_edited_is_followed_and_a_bad_edit_changes_nothing_and_is_seen,
        ],
    },
    Host {
        name: "demo",
        kubelet: "",
        scenarios: scenarios![
            quick_start::the_quick_start_of_the_readme_works_word_by_word,
            quick_start::the_other_pods_that_ship_get_what_they_ask_for,
            manifests::the_plugin_runs_without_any_right,
            manifests::pod_security_objects_to_nothing_but_host_network_and_host_paths,
            manifests::the_api_server_takes_every_overlay,
            manifests::a_node_made_after_the_plugin_started_is_handed_over_all_the_same,
            watcher::through_the_kubelet_s_registry_a_pod_gets_its_devices,
            chart::ten_upgrades_of_the_chart_in_a_row_never_drop_a_device,
        ],
    },
    Host {
        name: "two-socket",
        kubelet: "topologyManagerPolicy: single-numa-node",
        scenarios: scenarios![
            topology::devices_of_one_pod_come_from_one_numa_node_or_it_is_refused,
            topology::the_kubelet_takes_the_devices_that_the_policy_prefers,
            multus::a_whole_pf_moves_into_a_pod_and_comes_back,
            cdi::three_pools_in_one_container_hand_over_their_devices_through_cdi,
            cdi::a_pool_of_kernel_drivers_is_served_with_cdi,
        ],
    },
    Host {
        name: "kunpeng-920",
        kubelet: "",
        scenarios: scenarios![
            engines::two_pods_see_one_engine_each_and_never_the_other_s,
            discovery::node_feature_discovery_labels_a_node_that_has_engines,
            chain::from_helm_to_an_engine_in_a_pod_and_back,
            chain::after_an_uninstall_without_hooks_one_command_releases_the_policy,
        ],
    },
    Host {
        name: "bluefield-sf",
        kubelet: "",
        scenarios: scenarios![subfunctions::a_pod_gets_a_subfunction_by_its_auxiliary_name],
    },
];

/// What is tried in a virtual machine, with real adapters. It is emulated, and takes minutes.
const MACHINE: &[Scenario] = scenarios![
    machine::in_a_virtual_machine_the_netdev_of_a_real_function_moves_in_and_out,
    machine::in_a_virtual_machine_a_pod_opens_its_vfio_group,
];

/// Hosts that run at the same time: most of their time goes by with waiting.
const AT_ONCE: usize = 2;

/// Where a machine fails a scenario, it is tried again on another one. Where that fails too, it is skipped.
const ATTEMPTS: usize = 2;

fn main() -> ExitCode {
    let mut asked = Vec::new();
    let mut boot = None;
    let mut list = false;
    let mut inside = false;
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => list = true,
            "--inside" => inside = true,
            "--boot" => boot = Some(arguments.next().unwrap_or_default()),
            // Those of Rust's own test harness that take a value; none has a meaning here.
            "--test-threads" | "--format" | "--color" | "--skip" | "--logfile" | "-Z" => {
                drop(arguments.next());
            }
            flag if flag.starts_with('-') => {}
            name => asked.push(name.to_owned()),
        }
    }
    if inside {
        return in_the_machine(&asked);
    }
    let is_asked =
        |scenario: &&Scenario| asked.is_empty() || asked.iter().any(|name| scenario.name.contains(name));
    let all: Vec<&Scenario> =
        SUITE.iter().flat_map(|host| host.scenarios).chain(MACHINE).filter(is_asked).collect();
    if list {
        for scenario in all {
            println!("{}: test", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    let kit = match kit::prepare() {
        Ok(kit) => kit,
        Err(failure) => return nothing_was_tried(&failure, &all),
    };
    if let Some(file) = boot {
        return by_hand(Path::new(&file), &kit);
    }
    let started = Instant::now();
    let tally = Tally::default();
    let hosts = Mutex::new(SUITE.iter());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(host) = next(&hosts) {
                    run_on(host, host.scenarios.iter().filter(is_asked).collect(), &kit, &tally);
                }
            });
        }
    });
    run_in_machine(MACHINE.iter().filter(is_asked).collect(), &kit, &tally);
    let seconds = started.elapsed().as_secs();
    tally.conclude(&format!(", {seconds} s"))
}

fn next<'a>(hosts: &Mutex<slice::Iter<'a, Host>>) -> Option<&'a Host> {
    hosts.lock().unwrap_or_else(PoisonError::into_inner).next()
}

fn nothing_was_tried(failure: &Failure, scenarios: &[&Scenario]) -> ExitCode {
    let tally = Tally::default();
    match failure {
        Failure::Harness(why) => tally.skip(scenarios, why),
        Failure::Product(what) => {
            tally.failed.store(scenarios.len(), Ordering::Relaxed);
            println!("nothing can be tried, the product failed: {what}");
        }
    }
    tally.conclude("")
}

#[derive(Default)]
struct Tally {
    passed: AtomicUsize,
    failed: AtomicUsize,
    /// With the reason.
    skipped: Mutex<Vec<(&'static str, String)>>,
}

impl Tally {
    fn skip(&self, scenarios: &[&Scenario], why: &str) {
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped.extend(scenarios.iter().map(|scenario| (scenario.name, why.to_owned())));
    }

    fn conclude(self, time: &str) -> ExitCode {
        let (passed, failed) = (self.passed.into_inner(), self.failed.into_inner());
        let skipped = self.skipped.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (name, why) in &skipped {
            println!("test {name} ... skipped: {why}");
        }
        if let Some((_, why)) = skipped.first() {
            println!("cluster: SKIPPED {} scenarios: {why}", skipped.len());
        }
        println!("cluster: {passed} passed, {failed} failed, {} skipped{time}", skipped.len());
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn run_on(host: &Host, mut left: Vec<&'static Scenario>, kit: &Kit, tally: &Tally) {
    for attempt in 1..=ATTEMPTS {
        if left.is_empty() {
            return;
        }
        let why = match run_in_turn(host, &mut left, kit, tally) {
            Ok(()) => return,
            Err(why) => why,
        };
        println!("host {} ... the harness failed (attempt {attempt} of {ATTEMPTS}): {why}", host.name);
        if attempt == ATTEMPTS {
            let first = why.lines().next().unwrap_or_default();
            tally.skip(&left, &format!("the harness failed twice: {first}"));
        }
    }
}

/// Runs scenarios on a machine of their own, and leaves those that the machine has failed.
fn run_in_turn(
    host: &Host,
    left: &mut Vec<&'static Scenario>,
    kit: &Kit,
    tally: &Tally,
) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/hosts/{}.host", host.name));
    let started = Instant::now();
    let mut node = boot(&path, host.kubelet, kit)?;
    println!("host {} is up, {:.1} s", host.name, started.elapsed().as_secs_f32());
    run_all(&mut node, left, tally)
}

fn run_all(node: &mut Node, left: &mut Vec<&'static Scenario>, tally: &Tally) -> Result<(), String> {
    while let Some(scenario) = left.first() {
        let started = Instant::now();
        node.next_scenario();
        let outcome = (scenario.run)(node);
        let seconds = started.elapsed().as_secs_f32();
        match outcome.map_err(|failure| blame(failure, node)) {
            Ok(()) => {
                tally.passed.fetch_add(1, Ordering::Relaxed);
                println!("test {} ... ok, {seconds:.1} s", scenario.name);
            }
            Err(Failure::Product(what)) => {
                tally.failed.fetch_add(1, Ordering::Relaxed);
                println!(
                    "test {} ... FAILED after {seconds:.1} s: the product failed: {what}\n{}",
                    scenario.name,
                    node.evidence()
                );
            }
            Err(Failure::Harness(what)) => {
                return Err(format!(
                    "{what}, in {} after {seconds:.1} s\n{}",
                    scenario.name,
                    node.evidence()
                ));
            }
        }
        left.remove(0);
        if let Err(Failure::Product(what) | Failure::Harness(what)) = plugin::clean_up(node) {
            return Err(format!("cannot clean up: {what}"));
        }
    }
    Ok(())
}

/// Runs scenarios in a virtual machine, where this program is [`in_the_machine`].
fn run_in_machine(mut left: Vec<&'static Scenario>, kit: &Kit, tally: &Tally) {
    if left.is_empty() {
        return;
    }
    if env::var_os("PCIDP_VM").is_none_or(|value| value != "1") {
        return tally.skip(&left, "PCIDP_VM=1 is not set");
    }
    for attempt in 1..=ATTEMPTS {
        let names: Vec<&str> = left.iter().map(|scenario| scenario.name).collect();
        let why = match machine::run(&names, kit) {
            Ok(said) => {
                println!("{}", said.trim_end());
                left.retain(|scenario| {
                    let line = format!("test {} ... ", scenario.name);
                    let verdict = said.lines().find_map(|text| text.strip_prefix(&line)).unwrap_or_default();
                    let (passed, failed) = (verdict.starts_with("ok"), verdict.starts_with("FAILED"));
                    tally.passed.fetch_add(usize::from(passed), Ordering::Relaxed);
                    tally.failed.fetch_add(usize::from(failed), Ordering::Relaxed);
                    !passed && !failed
                });
                "the cluster in the machine was not well".to_owned()
            }
            Err(why) => why,
        };
        if left.is_empty() {
            return;
        }
        println!("virtual machine ... the harness failed (attempt {attempt} of {ATTEMPTS}): {why}");
        if attempt == ATTEMPTS {
            let first = why.lines().next().unwrap_or_default();
            tally.skip(&left, &format!("the harness failed twice: {first}"));
        }
    }
}

/// The side in the machine. Its words are programs, images, our image, and names of scenarios.
fn in_the_machine(words: &[String]) -> ExitCode {
    let [programs, images, pcidp, names @ ..] = words else { return ExitCode::FAILURE };
    let kit = Kit { programs: programs.into(), images: images.into(), pcidp: pcidp.into() };
    let mut left = MACHINE.iter().filter(|scenario| names.iter().any(|name| name == scenario.name)).collect();
    let started = Instant::now();
    let outcome = Node::here(&kit).map_err(|failure| format!("{failure:?}")).and_then(|mut node| {
        println!("the cluster in the machine is up, {:.1} s", started.elapsed().as_secs_f32());
        run_all(&mut node, &mut left, &Tally::default())
    });
    match outcome {
        Ok(()) => println!("{}", machine::DONE),
        Err(why) => println!("the harness failed: {why}"),
    }
    ExitCode::SUCCESS
}

fn boot(path: &Path, kubelet: &str, kit: &Kit) -> Result<Node, String> {
    let recording = Recording::open(path).map_err(|error| error.to_string())?;
    Node::boot(&recording, kubelet, kit).map_err(|failure| match failure {
        Failure::Product(why) | Failure::Harness(why) => why,
    })
}

/// A failure of the product on a node that is not well is the harness's.
fn blame(failure: Failure, node: &Node) -> Failure {
    match failure {
        Failure::Harness(what) => Failure::Harness(what),
        Failure::Product(what) => match node.is_well() {
            Ok(()) => Failure::Product(what),
            Err(why) => Failure::Harness(format!("the node is not well: {why}; seen as: {what}")),
        },
    }
}

/// Boots a host for a person who wants to look around.
fn by_hand(path: &Path, kit: &Kit) -> ExitCode {
    match boot(path, "", kit) {
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
