//! Floor 1: (config, inventory) → pools, and why.

mod assign;
mod explain;
mod health;
mod prefer;

pub use assign::{Member, Pool, Pools, assign};
pub use explain::{
    DeviceExplanation, Judgement, ObjectJudgement, PoolExplanation, Step, explain_device, explain_pool,
};
pub use health::health;
pub use prefer::prefer;
