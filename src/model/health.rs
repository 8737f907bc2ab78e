//! Health of a device, as the kubelet is told.

use std::fmt;

/// Whether a device can be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Healthy,
    /// It cannot, for this reason (a sentence without a full stop).
    Unhealthy(String),
}

impl Health {
    /// Whether the kubelet may hand the device out.
    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Unhealthy(reason) => write!(f, "unhealthy: {reason}"),
        }
    }
}
