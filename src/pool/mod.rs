//! Floor 1: (config, inventory) → pools, and why.

mod assign;
mod carrier;
mod explain;
mod freed;
mod groups;
mod health;
mod offer;
mod prefer;
mod warnings;

pub use assign::{Member, Pool, Pools, assign};
pub use explain::{
    DeviceExplanation, Judgement, ObjectJudgement, PoolExplanation, Step, explain_device, explain_pool,
};
pub use freed::Freed;
pub use health::{HealthChange, health, health_changes};
pub use offer::{GONE_SHOWN, Held, Offer};
pub use prefer::prefer;
pub use warnings::{Warning, list, warnings};
