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
    check: Check<'a>,
}

type Check<'a> = Box<dyn Fn(&Device) -> Result<(), Miss> + 'a>;

impl Test<'_> {
    /// Asks the test about a device.
    ///
    /// # Errors
    /// What was wanted and what was found.
    pub fn ask(&self, device: &Device) -> Result<(), Miss> {
        (self.check)(device)
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
        self.objects.iter().position(|tests| tests.iter().all(|test| test.ask(device).is_ok()))
    }

    /// The tests of each selector object, for an explanation.
    pub fn objects(&self) -> &[Vec<Test<'a>>] {
        &self.objects
    }
}

/// Whether a device is of the kind that a device type means.
pub(crate) fn is_of_type(
    pool: &PoolConfig,
    selector: Option<&Selector>,
    device: &Device,
) -> Result<(), Miss> {
    let class = device.class;
    let is_subfunction = matches!(device.function, Function::Sub { .. });
    let asked_by_class = || {
        let classes = selector.and_then(|selector| selector.classes.as_ref());
        classes.is_some_and(|classes| classes.iter().any(|pattern| pattern.matches(class)))
    };
    let asked_by_id = || selector.is_some_and(|selector| selector.devices.is_some());
    let (matches, wanted) = match pool.device_type {
        DeviceType::NetDevice => (class.is_network() && !is_subfunction, "a PCI function of class 02"),
        DeviceType::AuxNetDevice => (is_subfunction, "a subfunction below a function of class 02"),
        DeviceType::Accelerator => (
            !is_subfunction
                && (class.is_accelerator()
                    || (class.is_accelerator_by_id() && asked_by_id())
                    || (!class.is_network() && asked_by_class())),
            "class 12, 1000 or 0b40 (others by `classes`)",
        ),
    };
    let found = match is_subfunction {
        true => "a subfunction".to_owned(),
        false => format!("class {class}"),
    };
    let miss = || Miss { key: "deviceType", wanted: wanted.to_owned(), found };
    if matches { Ok(()) } else { Err(miss()) }
}

/// Whether a function with VFs may be offered: a network PF never, an accelerator's PF always, a KAE engine's only where
/// PFs are asked for (its queues are split between PF and VFs).
pub(crate) fn may_have_vfs(
    pool: &PoolConfig,
    selector: Option<&Selector>,
    device: &Device,
) -> Result<(), Miss> {
    let Function::Physical { vfs } = device.function else {
        return Ok(());
    };
    let asked = selector.and_then(|selector| selector.function_types.as_ref());
    let asked = asked.is_some_and(|types| types.contains(&FunctionType::Pf));
    let barred = match pool.device_type {
        DeviceType::NetDevice => true,
        DeviceType::Accelerator => device.is_kae_engine() && !asked,
        DeviceType::AuxNetDevice => false,
    };
    if vfs == 0 || !barred {
        return Ok(());
    }
    let wanted = match pool.device_type {
        DeviceType::Accelerator => "no VFs, or functionTypes with `pf`",
        DeviceType::NetDevice | DeviceType::AuxNetDevice => "no VFs; a PF that has some is never offered",
    };
    Err(Miss { key: "PF", wanted: wanted.to_owned(), found: format!("{vfs} VFs configured") })
}

/// The guard of the node's uplink.
pub(crate) fn not_in_use(pool: &PoolConfig, device: &Device) -> Result<(), Miss> {
    match &device.default_route {
        Some(route)
            if pool.device_type != DeviceType::Accelerator && !pool.allow_in_use.contains(&device.id) =>
        {
            Err(Miss {
                key: "default route",
                wanted: "none, for a device that carries the node's own traffic is never offered".to_owned(),
                found: format!("`{route}`"),
            })
        }
        _ => Ok(()),
    }
}

/// A device on VFIO has one owner; it cannot be shared.
pub(crate) fn can_be_shared(device: &Device) -> Result<(), Miss> {
    match &device.vfio {
        None => Ok(()),
        Some(_) => Err(Miss {
            key: "replicas",
            wanted: "a device that containers can share".to_owned(),
            found: "one on VFIO, which has a single owner".to_owned(),
        }),
    }
}

/// Devices without an IOMMU, where the pool refuses them.
pub(crate) fn has_iommu(pool: &PoolConfig, device: &Device) -> Result<(), Miss> {
    if pool.allow_no_iommu || !device.lacks_iommu() {
        return Ok(());
    }
    Err(Miss {
        key: "allowNoIommu",
        wanted: "an IOMMU, for the pool says false".to_owned(),
        found: "none behind it".to_owned(),
    })
}
