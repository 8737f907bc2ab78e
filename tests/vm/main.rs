//! Scenarios on a real kernel with real SR-IOV adapters, in a virtual machine; `README.md` tells how.
//!
//! This program is both sides: on a computer it is a test harness that boots the machine, in the machine (there
//! `PCIDP_VM_GUEST` is set) it runs the scenarios that it is told to run.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a scenario fails by panicking")]
#![expect(clippy::print_stdout, reason = "a harness tells what it does")]

mod canonical;
mod engines;
mod guest;
mod harness;
mod kinds;
mod live;
mod machine;
mod node;
mod pools;
mod recordings;
mod uplink;

use std::process::ExitCode;

use machine::{Machine, Trouble};

/// One scenario. It runs in the machine, which is as it was after its boot.
struct Scenario {
    /// `file::function`.
    name: &'static str,
    boot: Boot,
    run: fn(&Machine) -> Outcome,
}

/// How the machine is booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boot {
    /// With an IOMMU.
    Iommu,
    /// Without one, and vfio in its no-IOMMU mode.
    NoIommu,
    /// With an IOMMU, for what cannot be undone.
    Software,
}

/// The product fails by a panic; an error means that the machine did not do what the scenario needs.
type Outcome = Result<(), Trouble>;

/// Names a function as a scenario.
macro_rules! scenario {
    ($boot:ident, $run:ident) => {
        $crate::Scenario {
            name: concat!(module_path!(), "::", stringify!($run)),
            boot: $crate::Boot::$boot,
            run: $run,
        }
    };
}
use scenario;

/// All scenarios in the order in which they run; the recordings want a machine that nobody has used.
fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    [
        recordings::SCENARIOS,
        pools::SCENARIOS,
        uplink::SCENARIOS,
        engines::SCENARIOS,
        kinds::SCENARIOS,
        live::SCENARIOS,
    ]
    .into_iter()
    .flatten()
}

impl Scenario {
    /// Without the name of this program.
    fn name(&self) -> &'static str {
        self.name.trim_start_matches("vm::")
    }
}

fn main() -> ExitCode {
    match std::env::var_os(guest::MARK) {
        Some(scenario) => guest::main(&scenario.to_string_lossy()),
        None => harness::main(),
    }
}
