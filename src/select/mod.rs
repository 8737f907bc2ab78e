//! Floor 1: one selector object is an ordered list of tests; a test answers match, or miss and why.

mod tests_of;

use std::fmt;

use crate::config::{DeviceType, FunctionType, PoolConfig, Selector};
use crate::model::{Device, Function};

pub use tests_of::tests;

/// One test of a selector object.
pub struct Test<'a> {
    /// The key in the config: `vendors`.
    pub key: &'static str,
    matches: Box<dyn Fn(&Device) -> bool + 'a>,
    tell: Tell<'a>,
}

/// Tells what was wanted and what was found. Most of the tests of a thousand devices fail, and few are ever explained.
type Tell<'a> = Box<dyn Fn(&Device) -> (String, String) + 'a>;

impl Test<'_> {
    /// Whether a device passes the test.
    pub fn matches(&self, device: &Device) -> bool {
        (self.matches)(device)
    }

    /// Asks the test about a device.
    ///
    /// # Errors
    /// What was wanted and what was found.
    pub fn ask(&self, device: &Device) -> Result<(), Miss> {
        if self.matches(device) {
            return Ok(());
        }
        let (wanted, found) = (self.tell)(device);
        Err(Miss { key: self.key, wanted, found })
    }
}

/// Why a device does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// The key of the selector, or the name of a rule.
    pub key: &'static str,
    /// What was wanted.
    pub wanted: String,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wanted {}, found {}", self.key, self.wanted, self.found)
    }
}

/// The tests of a pool, made once and asked for many devices.
pub struct Matcher<'a> {
    pool: &'a PoolConfig,
    /// One list a selector object; a pool without one has a single list.
    objects: Vec<Vec<Test<'a>>>,
}

impl<'a> Matcher<'a> {
    /// The tests of a pool.
    pub fn new(pool: &'a PoolConfig) -> Self {
        let mut objects: Vec<_> = pool.selectors.iter().map(|selector| tests(pool, Some(selector))).collect();
        if objects.is_empty() {
            objects.push(tests(pool, None));
        }
        Self { pool, objects }
    }

    /// The pool.
    pub fn pool(&self) -> &'a PoolConfig {
        self.pool
    }

    /// The position of the first selector object that matches.
    pub fn first_match(&self, device: &Device) -> Option<usize> {
        self.objects.iter().position(|tests| tests.iter().all(|test| test.matches(device)))
    }

    /// The tests of each selector object, for an explanation.
    pub fn objects(&self) -> &[Vec<Test<'a>>] {
        &self.objects
    }
}

/// Whether a device is of the kind that a device type means.
fn is_of_type(pool: &PoolConfig, selector: Option<&Selector>, device: &Device) -> bool {
    let class = device.class;
    let asked_by_class = || {
        let classes = selector.and_then(|selector| selector.classes.as_ref());
        classes.is_some_and(|classes| classes.iter().any(|pattern| pattern.matches(class)))
    };
    let asked_by_id = || selector.is_some_and(|selector| selector.devices.is_some());
    match (pool.device_type, &device.function) {
        (DeviceType::AuxNetDevice, function) => matches!(function, Function::Sub { .. }),
        (_, Function::Sub { .. }) => false,
        (DeviceType::NetDevice, _) => class.is_network(),
        (DeviceType::Accelerator, _) => {
            class.is_accelerator()
                || (class.is_accelerator_by_id() && asked_by_id())
                || (!class.is_network() && asked_by_class())
        }
    }
}

fn devices_of_type(pool: &PoolConfig) -> &'static str {
    match pool.device_type {
        DeviceType::NetDevice => "a PCI function of class 02",
        DeviceType::AuxNetDevice => "a subfunction below a function of class 02",
        DeviceType::Accelerator => "class 12, 1000 or 0b40 (others by `classes`)",
    }
}

fn type_of(device: &Device) -> String {
    match device.function {
        Function::Sub { .. } => "a subfunction".to_owned(),
        _ => format!("class {}", device.class),
    }
}

/// Whether a function with VFs may be offered: a network PF never, an accelerator's PF always, a KAE engine's only where
/// PFs are asked for (its queues are split between PF and VFs).
fn may_have_vfs(pool: &PoolConfig, selector: Option<&Selector>, device: &Device) -> bool {
    if configured_vfs(device) == 0 {
        return true;
    }
    let asked = selector.and_then(|selector| selector.function_types.as_ref());
    match pool.device_type {
        DeviceType::NetDevice => false,
        DeviceType::Accelerator => {
            !device.is_kae_engine() || asked.is_some_and(|types| types.contains(&FunctionType::Pf))
        }
        DeviceType::AuxNetDevice => true,
    }
}

fn configured_vfs(device: &Device) -> usize {
    match device.function {
        Function::Physical { vfs } => vfs,
        Function::Virtual { .. } | Function::Orphan | Function::Sub { .. } => 0,
    }
}

fn no_vfs(pool: &PoolConfig) -> &'static str {
    match pool.device_type {
        DeviceType::Accelerator => "no VFs, or functionTypes with `pf`",
        DeviceType::NetDevice | DeviceType::AuxNetDevice => "no VFs; a PF that has some is never offered",
    }
}

/// The guard of the node's uplink.
fn not_in_use(pool: &PoolConfig, device: &Device) -> bool {
    device.default_route.is_none()
        || pool.device_type == DeviceType::Accelerator
        || pool.allow_in_use.contains(&device.id)
}
