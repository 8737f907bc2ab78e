//! Whether the links of a pool's devices are up, judged with patience.
//!
//! ```text
//!            down for `downAfter`
//!   ┌────┐ ───────────────────────▶ ┌──────┐
//!   │ up │                          │ down │   a change back before that starts the time anew
//!   └────┘ ◀─────────────────────── └──────┘
//!             up for `upAfter`
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use super::Pool;
use super::offer::Due;
use crate::config::LinkHealth;
use crate::model::{Device, Function, Health, LinkState, PciAddress, ResourceName};

/// The judgements of all pools: by resource, then by the function whose link is judged.
#[derive(Debug, Clone, Default)]
pub(super) struct Carriers(BTreeMap<ResourceName, BTreeMap<PciAddress, Judged>>);

#[derive(Debug, Clone, Copy)]
struct Judged {
    is_down: bool,
    looks_down: bool,
    since: Duration,
}

impl Carriers {
    /// Makes those members unhealthy whose link is down for long enough.
    pub(super) fn judge(&mut self, pool: &mut Pool, now: Duration, due: &mut Due) {
        let policy = pool.config.health;
        if policy.link == LinkHealth::Ignore {
            self.0.remove(&pool.config.resource);
            return;
        }
        let mut earlier = self.0.remove(&pool.config.resource).unwrap_or_default();
        let mut judged: BTreeMap<PciAddress, Judged> = BTreeMap::new();
        for member in &mut pool.members {
            let port = port(&member.device);
            let looks_down = link(&member.device).is_some_and(|link| looks_down(link, policy.link));
            let judged = judged.entry(port).or_insert_with(|| {
                let first = Judged { is_down: looks_down, looks_down, since: now };
                let mut judged = earlier.remove(&port).unwrap_or(first);
                if judged.looks_down != looks_down {
                    judged = Judged { looks_down, since: now, ..judged };
                }
                if judged.is_down != looks_down {
                    let at = judged.since + if looks_down { policy.down_after } else { policy.up_after };
                    match now >= at {
                        true => judged.is_down = looks_down,
                        false => due.at(at),
                    }
                }
                judged
            });
            if judged.is_down && member.health.is_healthy() {
                member.health = Health::Unhealthy(reason(&member.device, policy.link));
            }
        }
        self.0.insert(pool.config.resource.clone(), judged);
    }

    /// Forgets the pools that are not among these.
    pub(super) fn keep_only(&mut self, is_kept: impl Fn(&ResourceName) -> bool) {
        self.0.retain(|resource, _| is_kept(resource));
    }
}

/// The function whose link is judged: a VF or SF has that of its PF, whose cable it shares.
fn port(device: &Device) -> PciAddress {
    device.pf().map_or(device.address, |pf| pf.address)
}

/// The link to judge. A PF that is down by choice, or that has no netdev here, is not judged.
fn link(device: &Device) -> Option<LinkState> {
    match &device.function {
        Function::Virtual { pf, .. } | Function::Sub { pf, .. } => pf.link,
        Function::Physical { .. } | Function::Orphan => LinkState::of(&device.netdevs),
    }
}

fn looks_down(link: LinkState, policy: LinkHealth) -> bool {
    match policy {
        LinkHealth::Carrier => link.up && link.carrier == Some(false),
        LinkHealth::Admin => !link.up,
        LinkHealth::Ignore => false,
    }
}

fn reason(device: &Device, policy: LinkHealth) -> String {
    let name = match device.pf() {
        Some(pf) => pf.names.first().cloned(),
        None => device.netdevs.first().map(|netdev| netdev.name.clone()),
    };
    let name = name.unwrap_or_else(|| port(device).to_string());
    match policy {
        LinkHealth::Admin => format!("{name} is administratively down"),
        LinkHealth::Carrier | LinkHealth::Ignore => format!("{name} has no carrier"),
    }
}
