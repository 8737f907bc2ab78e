//! Upgrades of the driver, node by node.
//!
//! The driver's pods are only replaced when somebody deletes them, for a new one may reload modules. With `autoUpgrade` this
//! does it: it takes the node out of service, has the pods evicted that hold engines, replaces the driver's pod, and brings the
//! node back. A node's state is in its own label, so that an operator that comes later goes on where another one was.
//!
//! ```text
//!                            ┌────────────────────────────────────────────────────────────────┐
//!  (none) ── older pod ──▶ upgrade-required ◀── paused, skipped, too many unavailable ──┐     │ another
//!    │                       │ a slot is free                                           │     │ revision
//!    │                       ▼                                                          │     │
//!    │                     cordon-required ── it is cordoned ──▶ wait-for-jobs-required ┤     │
//!    │                                                             │ no jobs, or late   │     │
//!    │                                                             ▼                    │     │
//!    │                     drain-required ◀── no pod holds ── pod-deletion-required ────┤     │
//!    │                       │   │                                 │ late               │     │
//!    │                       │   └──────── late ──────────┐        └───────────▶ upgrade-failed ◀┐
//!    │                       │ drained, or not wanted     └────────────────────────▲      │      │
//!    │                       ▼                                                            │      │ late
//!    │                     pod-restart-required ── new pod ──▶ validation-required ───────┼──────┘
//!    │                                                           │ it is ready            │ it is ready after all
//!    │  newest pod                                               ▼                        ▼
//!    └───────────────────────────────────────────────────▶ upgrade-done ◀── uncordon-required
//! ```
//!
//! A node that fails is given back as well, and stops no other. A node is made schedulable again only where the operator made
//! it unschedulable, and nobody else has since: the API server keeps who wrote `spec.unschedulable` last
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>).

mod act;
mod facts;
mod step;
#[cfg(test)]
mod tests;
mod view;

pub use act::{Upgrades, pass, withdraw};
pub use facts::{Cordon, DriverPod, NodeFacts, PodFacts, Pods, State};
pub use step::{Action, Decision, step};

/// The label with a node's state.
pub const STATE: &str = "openfuyao.com/kae-driver-upgrade-state";
/// The annotation that says since when, in RFC 3339.
pub const SINCE: &str = "openfuyao.com/kae-driver-upgrade-since";
/// The annotation that says why.
pub const REASON: &str = "openfuyao.com/kae-driver-upgrade-reason";
/// The annotation that says which revision of the driver's pod failed.
pub const REVISION: &str = "openfuyao.com/kae-driver-upgrade-revision";
/// A user's label: with `true`, the node is left out. It is the user's, and stays when the operator's own labels go.
pub const SKIP: &str = "openfuyao.com/kae.upgrade.skip";
