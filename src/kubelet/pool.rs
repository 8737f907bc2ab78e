//! What an endpoint asks of a pool.

use std::sync::Arc;

use tonic::{Code, Status};

use super::api::deviceplugin::DevicePluginOptions;
use crate::model::Handout;

/// What the kubelet is told of one device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Advertised {
    /// The id by which the kubelet asks for it.
    pub id: String,
    /// Whether it can be handed out.
    pub healthy: bool,
    /// The NUMA node, where it is known and wanted.
    pub numa_node: Option<u32>,
}

/// Every device of a pool, sorted.
pub type DeviceList = Arc<[Advertised]>;

/// The optional calls that a pool wants from the kubelet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// `GetPreferredAllocation` has an answer.
    pub preferred_allocation: bool,
    /// `PreStartContainer` is to be called before each start of a container.
    pub pre_start: bool,
}

impl From<PluginOptions> for DevicePluginOptions {
    fn from(options: PluginOptions) -> Self {
        Self {
            pre_start_required: options.pre_start,
            get_preferred_allocation_available: options.preferred_allocation,
        }
    }
}

impl From<DevicePluginOptions> for PluginOptions {
    fn from(options: DevicePluginOptions) -> Self {
        Self {
            preferred_allocation: options.get_preferred_allocation_available,
            pre_start: options.pre_start_required,
        }
    }
}

/// A pool, as its endpoint sees it.
///
/// The calls run where all sockets are served, one at a time: what they read and write are attributes of sysfs and files in
/// memory, and the way to another thread and back would cost more than that.
pub trait Pool: Send + Sync + 'static {
    /// The optional calls that the pool wants.
    fn options(&self) -> PluginOptions;

    /// What each container receives, in the order of the containers.
    ///
    /// # Errors
    /// The first device that cannot be handed out; then nothing has been written for any of them.
    fn allocate(&self, containers: &[Vec<String>]) -> Result<Vec<Handout>, Refusal>;

    /// Exactly `size` ids of `available`, with every one of `must_include`.
    ///
    /// # Errors
    /// Why there is no such choice.
    fn prefer(
        &self,
        available: &[String],
        must_include: &[String],
        size: usize,
    ) -> Result<Vec<String>, Refusal>;

    /// Checks devices whose container is about to start.
    ///
    /// # Errors
    /// The first device that the container could not use.
    fn pre_start(&self, ids: &[String]) -> Result<(), Refusal>;
}

/// Why a pool does not do what the kubelet asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pool has no such device.
    #[error("device {id} is unknown to {resource}")]
    Unknown {
        /// The id as the kubelet sent it.
        id: String,
        /// `prefix/name` of the pool.
        resource: String,
    },
    /// The id is named twice for one container.
    #[error("device {id} is named more than once")]
    Repeated {
        /// The id as the kubelet sent it.
        id: String,
    },
    /// The request contradicts itself.
    #[error("the request cannot be met: {reason}")]
    Impossible {
        /// A clause that says what cannot be.
        reason: String,
    },
    /// The device is unhealthy.
    #[error("device {id} is unhealthy: {reason}")]
    Unhealthy {
        /// The id as the kubelet sent it.
        id: String,
        /// A clause that says why.
        reason: String,
    },
    /// Something that the device needs (a node, a group) is not there now.
    #[error("device {id} is not ready: {reason}")]
    NotReady {
        /// The id as the kubelet sent it.
        id: String,
        /// A clause that names what is missing.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("device {id}: {reason}")]
    Failed {
        /// The id as the kubelet sent it.
        id: String,
        /// A clause that names the path and the error.
        reason: String,
    },
}

impl Refusal {
    /// A word for each, for what counts them.
    pub const WORDS: [&str; 6] = ["unknown", "repeated", "impossible", "unhealthy", "not_ready", "failed"];

    /// Its word.
    pub fn word(&self) -> &'static str {
        let [unknown, repeated, impossible, unhealthy, not_ready, failed] = Self::WORDS;
        match self {
            Self::Unknown { .. } => unknown,
            Self::Repeated { .. } => repeated,
            Self::Impossible { .. } => impossible,
            Self::Unhealthy { .. } => unhealthy,
            Self::NotReady { .. } => not_ready,
            Self::Failed { .. } => failed,
        }
    }
}

/// The only place where a refusal becomes a gRPC status. The kubelet shows code and message in the pod's events.
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Unknown { .. } | Refusal::Repeated { .. } | Refusal::Impossible { .. } => {
                Code::InvalidArgument
            }
            Refusal::Unhealthy { .. } | Refusal::NotReady { .. } => Code::FailedPrecondition,
            Refusal::Failed { .. } => Code::Internal,
        };
        Self::new(code, refusal.to_string())
    }
}
