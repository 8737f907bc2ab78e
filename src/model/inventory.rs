//! What one scan found.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Device, DeviceId, Function, PciAddress, PhysicalFunction};

/// Something that a scan could not read, or found odd.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The path, as the user would type it.
    pub path: String,
    /// What happened.
    pub cause: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.cause)
    }
}

/// The devices of a host, sorted by id, and a note for whatever could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    devices: Vec<Arc<Device>>,
    notes: Vec<Note>,
}

impl Inventory {
    /// Sorts devices and notes.
    pub fn new(mut devices: Vec<Device>, mut notes: Vec<Note>) -> Self {
        devices.sort_by(|a, b| a.id.cmp(&b.id));
        notes.sort();
        notes.dedup();
        Self { devices: devices.into_iter().map(Arc::new).collect(), notes }
    }

    /// The same, with the devices of an earlier scan wherever they are equal, and with copies of the others.
    ///
    /// What a scan found lies strewn among all that it has read and thrown away, on the heaps of its threads. A copy leaves
    /// those empty; a daemon keeps inventories for long.
    #[must_use]
    pub fn settled(&self, earlier: &Self) -> Self {
        let mut parents: BTreeMap<PciAddress, Arc<PhysicalFunction>> = BTreeMap::new();
        let copy = |device: &Arc<Device>| match earlier.get(&device.id) {
            Some(known) if known == device => Arc::clone(known),
            _ => {
                let mut device = (**device).clone();
                if let Function::Virtual { pf, .. } | Function::Sub { pf, .. } = &mut device.function {
                    let parent = parents.entry(pf.address).or_insert_with(|| Arc::new((**pf).clone()));
                    if parent == pf {
                        *pf = Arc::clone(parent);
                    }
                }
                Arc::new(device)
            }
        };
        Self { devices: self.devices.iter().map(copy).collect(), notes: self.notes.clone() }
    }

    /// The devices in the order of their ids.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// The notes.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The device with this id.
    pub fn get(&self, id: &DeviceId) -> Option<&Arc<Device>> {
        let position = self.devices.binary_search_by(|device| device.id.cmp(id)).ok()?;
        self.devices.get(position)
    }
}
