//! What a person should know of devices that can be handed out.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{Device, DeviceId};

/// A warning about some devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// They share an IOMMU group.
    SharedGroup {
        /// The group.
        group: u32,
        /// The devices, sorted.
        devices: Vec<DeviceId>,
    },
    /// Nothing keeps them from the node's memory.
    NoIommu {
        /// The devices, sorted.
        devices: Vec<DeviceId>,
    },
}

impl Warning {
    /// Whether it tells of this device.
    pub fn concerns(&self, id: &DeviceId) -> bool {
        let (Self::SharedGroup { devices, .. } | Self::NoIommu { devices }) = self;
        devices.contains(id)
    }
}

/// The warnings about some devices: shared groups by number, then devices without an IOMMU.
pub fn warnings<'a>(devices: impl IntoIterator<Item = &'a Device>) -> Vec<Warning> {
    let mut groups: BTreeMap<u32, Vec<DeviceId>> = BTreeMap::new();
    let mut unguarded = Vec::new();
    for device in devices {
        if let Some(group) = device.shareable_group() {
            groups.entry(group).or_default().push(device.id.clone());
        }
        if device.lacks_iommu() {
            unguarded.push(device.id.clone());
        }
    }
    let shared = groups.into_iter().filter(|(_, devices)| devices.len() > 1);
    let mut warnings: Vec<Warning> =
        shared.map(|(group, devices)| Warning::SharedGroup { group, devices }).collect();
    if !unguarded.is_empty() {
        warnings.push(Warning::NoIommu { devices: unguarded });
    }
    warnings
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedGroup { group, devices } => write!(
                f,
                "IOMMU group {group} is shared by {}; only one container can open it, so ask for all of them together \
                 (an `allocationPolicy` keeps them together)",
                list(devices)
            ),
            Self::NoIommu { devices } => write!(
                f,
                "no IOMMU guards {}; whoever has such a device reaches all memory of the node (`allowNoIommu: false` \
                 keeps it out of a pool)",
                list(devices)
            ),
        }
    }
}

/// Some ids, for a person: a PF that loses its link takes many with it.
pub fn list(devices: &[DeviceId]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<&str> = devices.iter().take(SHOWN).map(DeviceId::as_str).collect();
    match devices.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
