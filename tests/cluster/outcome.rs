//! How a scenario ends.

use std::fmt::{Debug, Display};

/// Why a scenario did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The product does not do what the scenario says; where the node is not well, the harness is to blame after all.
    Product(String),
    /// The suite itself is at fault.
    Harness(String),
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Something of the harness failed.
pub(crate) fn harness(what: impl Display) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::Harness(format!("{what}: {error}"))
}

/// The product must do this.
pub(crate) fn must(holds: bool, what: impl Display) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::Product(what.to_string())) }
}

/// Two things must be equal.
pub(crate) fn same<A: Debug + PartialEq<B>, B: Debug>(what: impl Display, found: A, expected: B) -> Outcome {
    must(found == expected, format!("{what}\n     found: {found:?}\n  expected: {expected:?}"))
}
