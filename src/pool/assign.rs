//! Which device belongs to which pool. Pure.

use std::sync::Arc;

use super::health;
use crate::config::{Config, PoolConfig, Selector};
use crate::model::{Device, DeviceId, Health, Inventory};
use crate::select::Matcher;

/// The pools of a node.
#[derive(Debug, Clone, Default)]
pub struct Pools {
    /// In the order of the config.
    pub pools: Vec<Pool>,
}

/// A pool with its devices.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Its config.
    pub config: Arc<PoolConfig>,
    /// Its devices, sorted by id.
    pub members: Vec<Member>,
    /// Devices that match, but belong to an earlier pool: the id and the position of that pool.
    pub lost: Vec<(DeviceId, usize)>,
    /// It offers nothing until it has so many devices.
    pub waits_for: Option<u32>,
}

/// A device of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The device.
    pub device: Arc<Device>,
    /// The position of the selector object that matched; its flags hold for this device.
    pub selector: usize,
    /// Whether it can be handed out.
    pub health: Health,
}

impl Pool {
    /// A pool that has no device yet.
    pub fn empty(config: &Arc<PoolConfig>) -> Self {
        Self { config: Arc::clone(config), members: Vec::new(), lost: Vec::new(), waits_for: None }
    }

    /// Whether both hold the same devices in the same state.
    pub fn holds_the_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.members == other.members
    }

    /// The device behind an id of the kubelet's: where devices are shared, each has several, `<id>::<k>`.
    pub fn member(&self, id: &str) -> Option<&Member> {
        let id = match (self.config.replicas, id.rsplit_once("::")) {
            (1, _) => id,
            (replicas, Some((id, share))) if share.parse().is_ok_and(|share: u32| share < replicas) => id,
            _ => return None,
        };
        self.of_device(id)
    }

    /// The device with this id of its own.
    pub fn of_device(&self, id: &str) -> Option<&Member> {
        let position = self.members.binary_search_by(|member| member.device.id.as_str().cmp(id)).ok()?;
        self.members.get(position)
    }

    /// The selector object that took a device.
    pub fn selector(&self, member: &Member) -> Option<&Selector> {
        self.config.selectors.get(member.selector)
    }
}

/// Gives every device to the first pool, in file order, that matches it: a pass over the devices, each asked against the
/// pools' tests, which are made once.
pub fn assign(config: &Config, inventory: &Inventory) -> Pools {
    let matchers: Vec<Matcher<'_>> = config.pools.iter().map(|pool| Matcher::new(pool)).collect();
    let mut pools: Vec<Pool> = config.pools.iter().map(Pool::empty).collect();
    for device in inventory.devices() {
        let mut owner = None;
        for (position, (matcher, pool)) in matchers.iter().zip(&mut pools).enumerate() {
            let Some(selector) = matcher.first_match(device) else {
                continue;
            };
            match owner {
                None => {
                    let health = health(device, &pool.config, pool.config.selectors.get(selector));
                    pool.members.push(Member { device: Arc::clone(device), selector, health });
                    owner = Some(position);
                }
                Some(owner) => pool.lost.push((device.id.clone(), owner)),
            }
        }
    }
    Pools { pools }
}
