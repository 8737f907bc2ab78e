//! What pods hold, and what they need to keep.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::cdi::Kept;
use super::{CdiDirectory, PoolService, UacceViews};
use crate::handout::cdi::kind;
use crate::kubelet::{self, Holder, Holders, Holding};
use crate::model::{DeviceId, ResourceName};
use crate::pool::Held;

/// A device's own id; where it is shared, the kubelet knows several, `<id>::<k>`.
fn plain(id: &str) -> &str {
    id.split_once("::").map_or(id, |(id, _)| id)
}

/// The devices that pods hold under the resources that count.
pub(super) fn held(holders: &Holders, counts: impl Fn(&str) -> bool) -> Held {
    let of_resource = |(resource, holders): (&String, &BTreeMap<String, Holder>)| {
        let pairs = holders.keys().map(|id| (plain(id).to_owned(), resource.clone()));
        pairs.collect::<Vec<_>>()
    };
    Held::Known(holders.iter().filter(|(resource, _)| counts(resource)).flat_map(of_resource).collect())
}

/// The devices that pods hold, as far as that is known.
pub(super) fn devices(held: &Held) -> impl Iterator<Item = DeviceId> {
    let known = match held {
        Held::Known(held) => Some(held.keys()),
        Held::Unknown => None,
    };
    known.into_iter().flatten().map(|id| DeviceId::from(id.as_str()))
}

/// The devices that pods hold under a resource.
pub(super) fn ids_of(held: &BTreeMap<String, String>, resource: &ResourceName) -> BTreeSet<String> {
    let resource = resource.to_string();
    held.iter().filter(|(_, holder)| **holder == resource).map(|(id, _)| id.clone()).collect()
}

/// Running containers keep what they were given, also when a reboot has emptied `/var/run`. The kubelet does not ask again
/// for them.
pub(super) fn restore<'a>(
    holdings: &[Holding],
    pools: impl Iterator<Item = (&'a ResourceName, &'a PoolService)>,
    device_plugins: &Path,
) {
    let pools: BTreeMap<String, &PoolService> =
        pools.map(|(resource, service)| (resource.to_string(), service)).collect();
    for holding in holdings {
        if let Some(service) = pools.get(&holding.resource) {
            service.restore(&holding.ids);
        }
    }
    let plain = |holding: &Holding| holding.ids.iter().map(|id| plain(id).to_owned()).collect();
    let kept: Vec<Vec<String>> = holdings.iter().map(plain).collect();
    UacceViews::new(device_plugins).keep_only(&kept);
}

/// CDI devices of kinds that no pool has stay resolvable for as long as containers have them.
pub(super) fn keep_cdi_devices(
    cdi: &CdiDirectory,
    device_plugins: &Path,
    pools: &[(&ResourceName, &PoolService)],
) {
    // Where it is not known who has what, nothing is removed.
    let Ok(holdings) = kubelet::holdings_from_checkpoint(device_plugins) else { return };
    let resources: Vec<&ResourceName> = pools.iter().map(|(resource, _)| *resource).collect();
    let mut kept: Vec<Kept> = Vec::new();
    for holding in &holdings {
        for (named, id) in holding.cdi_devices.iter().filter_map(|name| name.split_once('=')) {
            let Some((resource, service)) = pools.iter().find(|(_, service)| service.has(id)) else {
                continue;
            };
            // The pool's own spec has it already.
            if named == kind(resource) {
                continue;
            }
            let nodes = service.nodes(id).unwrap_or_default();
            let (resource, kind) = ((*resource).clone(), named.to_owned());
            kept.push(Kept { resource, kind, id: DeviceId::from(id), nodes });
        }
    }
    cdi.keep(&kept, &resources, |id| pools.iter().any(|(_, service)| service.has(id)));
}
