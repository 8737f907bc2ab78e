//! What is tried.

pub(crate) mod definition;
pub(crate) mod edit;
pub(crate) mod end;
pub(crate) mod faults;
pub(crate) mod life;
pub(crate) mod nodes;
pub(crate) mod observe;
pub(crate) mod rights;
pub(crate) mod upgrade;
