//! What is on offer: the assignment, and what time and the pods add to it. Pure.
//!
//! - A device that appears is offered once its driver and names have been still for `settle`; what is there at the start is
//!   offered at once.
//! - A device that a pod holds stays with the resource under which the pod got it, whatever the config says now, and leaves
//!   it only when it is gone from the machine; then it is unhealthy for [`GONE_SHOWN`] first. What is not known to be free
//!   counts as held.
//! - A pool that waits for its devices offers nothing, and keeps what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::carrier::Carriers;
use super::{Member, Pool, Pools, assign, health};
use crate::config::{Config, PoolConfig};
use crate::model::{Device, DeviceId, Health, Inventory, ResourceName};

/// How long a device that is gone is told as unhealthy, where a pod holds it.
pub const GONE_SHOWN: Duration = Duration::from_secs(10);

/// Who holds devices, as the kubelet tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Held {
    /// It does not tell.
    #[default]
    Unknown,
    /// The resource under which a pod holds a device, by the device's own id.
    Known(BTreeMap<String, String>),
}

/// The pools with their devices, and what must be remembered to tell the next state from this one.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    pools: Pools,
    /// Nothing was ever on offer.
    started: bool,
    /// Since when a device is as it is.
    still: BTreeMap<DeviceId, Still>,
    /// Since when a held device is gone.
    gone: BTreeMap<DeviceId, Duration>,
    /// The last pool of a device.
    owners: BTreeMap<DeviceId, Arc<PoolConfig>>,
    carriers: Carriers,
    /// Since when a pool waits; nothing once it waits no longer.
    waits: BTreeMap<ResourceName, Option<Duration>>,
    /// A pod keeps a device where the config would not have it.
    held_back: bool,
}

#[derive(Debug, Clone)]
struct Still {
    device: Arc<Device>,
    since: Duration,
}

impl Still {
    fn is_still(&self, device: &Arc<Device>) -> bool {
        let is_same =
            || self.device.driver == device.driver && self.device.netdev_names().eq(device.netdev_names());
        Arc::ptr_eq(&self.device, device) || is_same()
    }
}

/// The time at which something will change by itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Due(Option<Duration>);

impl Due {
    pub(super) fn at(&mut self, time: Duration) {
        self.0 = Some(self.0.map_or(time, |earlier| earlier.min(time)));
    }
}

impl Offer {
    /// The pools as they are now.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Whether it would be another one if pods let go of devices.
    pub fn depends_on_holders(&self) -> bool {
        self.held_back
    }

    /// Brings the offer up to date. `now` is the time since the start; the answer is the time at which the offer changes
    /// though nothing else does.
    pub fn update(
        &mut self,
        config: &Config,
        inventory: &Inventory,
        held: &Held,
        now: Duration,
    ) -> Option<Duration> {
        let mut due = Due::default();
        self.notice(inventory, now);
        let before = std::mem::take(&mut self.pools);
        let before: BTreeMap<&ResourceName, &Pool> =
            before.pools.iter().map(|pool| (&pool.config.resource, pool)).collect();
        let mut pools = assign(config, inventory);
        self.held_back = false;
        for pool in &mut pools.pools {
            let earlier = before.get(&pool.config.resource).copied();
            self.admit(pool, earlier, held, now, &mut due);
            self.keep_held(pool, earlier, inventory, held, now, &mut due);
            pool.members.sort_by(|a, b| a.device.id.cmp(&b.device.id));
            self.carriers.judge(pool, now, &mut due);
            self.wait(pool, now, &mut due);
        }
        self.remember(&pools, inventory, held);
        self.pools = pools;
        self.started = true;
        due.0
    }

    fn notice(&mut self, inventory: &Inventory, now: Duration) {
        let mut earlier = std::mem::take(&mut self.still);
        for device in inventory.devices() {
            let known = earlier.remove(&device.id).filter(|still| still.is_still(device));
            let since = known.map_or(now, |still| still.since);
            self.still.insert(device.id.clone(), Still { device: Arc::clone(device), since });
            self.gone.remove(&device.id);
        }
    }

    /// Takes out of a pool what is not to be offered there now.
    fn admit(&mut self, pool: &mut Pool, earlier: Option<&Pool>, held: &Held, now: Duration, due: &mut Due) {
        let resource = pool.config.resource.clone();
        pool.members.retain(|member| {
            let id = &member.device.id;
            if self.is_held_elsewhere(id, &resource, held) {
                self.held_back = true;
                return false;
            }
            if !self.started || earlier.is_some_and(|pool| pool.of_device(id.as_str()).is_some()) {
                return true;
            }
            let ready = self.still.get(id).map_or(now, |still| still.since + pool.config.settle);
            if now < ready {
                due.at(ready);
            }
            now >= ready
        });
    }

    fn is_held_elsewhere(&self, id: &DeviceId, resource: &ResourceName, held: &Held) -> bool {
        match held {
            Held::Known(held) => held.get(id.as_str()).is_some_and(|holder| *holder != resource.to_string()),
            Held::Unknown => self.owners.get(id).is_some_and(|owner| owner.resource != *resource),
        }
    }

    /// Puts back into a pool what pods hold of it.
    fn keep_held(
        &mut self,
        pool: &mut Pool,
        earlier: Option<&Pool>,
        inventory: &Inventory,
        held: &Held,
        now: Duration,
        due: &mut Due,
    ) {
        let resource = pool.config.resource.to_string();
        let ids: Vec<DeviceId> = match held {
            Held::Known(held) => held
                .iter()
                .filter(|(_, holder)| **holder == resource)
                .map(|(id, _)| DeviceId::from(id.as_str()))
                .collect(),
            Held::Unknown => earlier
                .into_iter()
                .flat_map(|pool| &pool.members)
                .map(|member| member.device.id.clone())
                .collect(),
        };
        let offered: BTreeSet<DeviceId> =
            pool.members.iter().map(|member| member.device.id.clone()).collect();
        for id in ids.into_iter().filter(|id| !offered.contains(id)) {
            let known = earlier.and_then(|pool| pool.of_device(id.as_str()));
            let selector = known.map_or(usize::MAX, |member| member.selector);
            let member = match (inventory.get(&id), known) {
                (Some(device), _) => {
                    Member { health: health_of_held(pool, device), device: Arc::clone(device), selector }
                }
                (None, Some(known)) => {
                    let until = *self.gone.entry(id).or_insert(now) + GONE_SHOWN;
                    if now >= until {
                        continue;
                    }
                    due.at(until);
                    let health = Health::Unhealthy("it is gone from the machine".to_owned());
                    Member { device: Arc::clone(&known.device), selector, health }
                }
                (None, None) => continue,
            };
            self.held_back = true;
            pool.members.push(member);
        }
    }

    fn wait(&mut self, pool: &mut Pool, now: Duration, due: &mut Due) {
        let Some(wait) = pool.config.wait_for else {
            self.waits.remove(&pool.config.resource);
            return;
        };
        let since = self.waits.entry(pool.config.resource.clone()).or_insert(Some(now));
        let Some(start) = *since else { return };
        let until = start + wait.timeout;
        if pool.members.len() >= wait.devices as usize || now >= until {
            *since = None;
            return;
        }
        due.at(until);
        pool.waits_for = Some(wait.devices);
    }

    fn remember(&mut self, pools: &Pools, inventory: &Inventory, held: &Held) {
        if *held != Held::Unknown {
            self.owners.clear();
        }
        self.owners.retain(|id, _| inventory.get(id).is_some());
        let mut resources = BTreeSet::new();
        for pool in &pools.pools {
            resources.insert(&pool.config.resource);
            for member in &pool.members {
                self.owners.insert(member.device.id.clone(), Arc::clone(&pool.config));
            }
        }
        self.carriers.keep_only(|resource| resources.contains(resource));
        self.waits.retain(|resource, _| resources.contains(resource));
    }
}

/// The health of a device that the config gives to nobody, or to somebody else, and that a pod holds.
fn health_of_held(pool: &Pool, device: &Device) -> Health {
    let wants = |driver: &str| {
        let wants = |drivers: &Vec<String>| drivers.iter().any(|wanted| wanted == driver);
        let selectors = &pool.config.selectors;
        selectors.is_empty() || selectors.iter().any(|selector| selector.drivers.as_ref().is_none_or(wants))
    };
    let driver = device.driver.as_deref();
    match wants(driver.unwrap_or_default()) {
        true => health(device, &pool.config, None),
        false => Health::Unhealthy(match driver {
            Some(driver) => format!("its driver is {driver}, and a pod got it under another"),
            None => "it has lost its driver".to_owned(),
        }),
    }
}
