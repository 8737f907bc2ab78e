//! `kae-operator` and a real API server: etcd and kube-apiserver, without kubelets and controllers, and the real binary.
//!
//! The programs are those of the cluster suite: `tests/cluster/build.sh` builds them, once, in about ten minutes. Without
//! them, all is skipped, and says so. The operator acts as a user that may do what `pcidp::operator::rbac` lists, and
//! nothing else.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test tells how it went")]

mod api_server;
mod kit;
mod process;
mod scenarios;
mod world;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Trial};

use world::World;

type Scenario = fn(&World);

macro_rules! scenarios {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$((stringify!($name), scenarios::$module::$name as Scenario)),*]
    };
}

/// In this order; the last one reads what all others have left.
const SUITE: &[(&str, Scenario)] = scenarios![
    definition::an_empty_policy_gets_the_documented_defaults,
    definition::a_bad_value_is_refused_and_its_message_says_why,
    definition::a_null_is_the_default,
    life::a_policy_brings_rule_labels_config_and_both_daemon_sets,
    life::no_node_with_engines_is_no_fault_but_no_discovery_is,
    life::a_second_policy_is_ignored,
    life::without_engines_to_manage_everything_is_withdrawn,
    edit::a_live_edit_is_followed,
    edit::every_value_has_an_effect,
    edit::a_config_that_the_plugin_would_refuse_changes_nothing,
    edit::whoever_changes_a_daemon_set_is_corrected_and_keeps_his_labels,
    nodes::an_opt_out_survives_a_node_that_is_made_again,
    nodes::engines_that_are_away_cost_a_node_its_operands_after_a_while,
    nodes::an_installer_that_fails_is_told_with_its_words,
    nodes::five_hundred_nodes_are_labelled_and_bared_again,
    upgrade::a_new_driver_goes_from_node_to_node_as_budgets_allow,
    upgrade::a_node_that_somebody_else_cordoned_stays_cordoned,
    upgrade::a_node_that_fails_is_given_back_and_stops_no_other,
    upgrade::a_policy_that_is_deleted_meanwhile_gives_nodes_back,
    end::a_deleted_policy_leaves_nothing,
    end::a_driver_that_is_not_wanted_any_more_is_removed_from_the_nodes,
    end::a_removal_that_does_not_end_is_given_up_and_told,
    end::without_the_operator_one_command_removes_its_traces,
    end::the_definition_goes_and_comes_with_the_hooks,
    observe::health_and_metrics_are_served,
    faults::an_operator_that_is_killed_at_any_time_goes_on,
    faults::of_two_replicas_one_acts_and_the_other_takes_over,
    faults::a_connection_that_refuses_delays_and_breaks_costs_time_only,
    rights::every_right_is_used_and_none_is_missing,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // There is one policy in a cluster.
    arguments.test_threads = Some(1);
    let programs = api_server::programs();
    if let Err(why) = &programs {
        eprintln!("operator: SKIPPED {} scenarios: {why}", SUITE.len());
    }
    let is_skipped = programs.is_err();
    let world: Arc<OnceLock<World>> = Arc::default();
    let trial = |(name, scenario): &(&'static str, Scenario)| {
        let (scenario, world, programs) = (*scenario, Arc::clone(&world), programs.clone());
        let run = move || {
            let world = world.get_or_init(|| World::new(&programs.unwrap_or_default()));
            world.try_it(scenario)
        };
        Trial::test(*name, run).with_ignored_flag(is_skipped)
    };
    let mut trials: Vec<Trial> = SUITE.iter().map(trial).collect();
    trials.push(Trial::test("the_shipped_definition_is_what_the_binary_prints", || {
        scenarios::definition::the_shipped_definition_is_what_the_binary_prints();
        Ok(())
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(world) = world.get() {
        world.end();
    }
    conclusion.exit_code()
}
