//! What the plugin says of itself: plain data, made by the daemon when somebody asks.

use serde::{Deserialize, Serialize};

use crate::kubelet::Holders;

/// The state of one instance, as `pcidp status -o json` prints it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// What sets this instance apart from others on the node.
    pub instance: String,
    /// Since its start.
    pub uptime_seconds: u64,
    /// How the kubelet learns of pools: `direct` or `watcher`.
    pub registration: String,
    /// The config that is served.
    pub config: ConfigReport,
    /// The pools, in the order of the config.
    pub pools: Vec<PoolReport>,
    /// The devices that were looked at, and those that pods hold though they are gone, sorted by id.
    pub devices: Vec<DeviceReport>,
    /// The last look at the machine; nothing before the first one has ended.
    pub scan: Option<ScanReport>,
    /// What could not be read of the machine.
    pub notes: Vec<NoteReport>,
    /// What could not be listened to.
    pub deaf: Vec<String>,
    /// The address for people and Prometheus, where there is one.
    pub http: Option<String>,
    /// Why it is not known who holds what.
    pub holders_unknown: Option<String>,
}

/// The config of an instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigReport {
    /// Where it comes from.
    pub source: Option<String>,
    /// Of the text that is served, in hex.
    pub hash: Option<String>,
    /// Since it was read.
    pub age_seconds: u64,
    /// The pools that have an error.
    pub refused: Vec<RefusedReport>,
    /// Errors and warnings of what is served, each with its place.
    pub problems: Vec<String>,
    /// Why what is there now cannot be used, so that the last good config is served on.
    pub error: Option<String>,
}

/// A pool that has an error in its config.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RefusedReport {
    /// `prefix/name`, or `resourceList[n]` where no name could be read.
    pub resource: String,
    /// The first error.
    pub reason: String,
    /// Its last good form is served on.
    pub served_on: bool,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolReport {
    /// `prefix/name`.
    pub resource: String,
    /// `deviceType` of its config.
    pub device_type: String,
    /// How many selector objects it has.
    pub selectors: usize,
    /// `replicas`.
    pub replicas: u32,
    /// `allocationPolicy`.
    pub allocation_policy: Vec<String>,
    /// `preStartCheck`.
    pub pre_start_check: bool,
    /// The state of its link to the kubelet.
    pub link: String,
    /// Why the kubelet does not have it.
    pub refusal: Option<String>,
    /// Streams that are open.
    pub streams: usize,
    /// The kubelet listens.
    pub is_streaming: bool,
    /// It should be registered, and nobody listens.
    pub is_unheard: bool,
    /// It offers nothing until it has so many devices.
    pub waits_for: Option<u32>,
    /// How many devices it has.
    pub devices: usize,
    /// How many of them are healthy.
    pub healthy: usize,
    /// How many of them pods hold.
    pub held: usize,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceReport {
    /// The kubelet's id.
    pub id: String,
    /// `pf`, `vf` or `sf`.
    pub function_type: String,
    /// Index of the VF, number of the SF.
    pub index: Option<u32>,
    /// How many VFs a PF has.
    pub vfs: Option<usize>,
    /// Address of its PF.
    pub pf_address: Option<String>,
    /// Names of its PF.
    pub pf_names: Vec<String>,
    /// The bound driver.
    pub driver: Option<String>,
    /// Its netdevs.
    pub netdevs: Vec<String>,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
    /// The pool that it is in.
    pub resource: Option<String>,
    /// Whether that pool can hand it out.
    pub healthy: bool,
    /// Why not.
    pub reason: Option<String>,
    /// The default route that leaves through it.
    pub default_route: Option<String>,
    /// The containers that hold it.
    pub holders: Vec<HolderReport>,
}

/// A container that holds a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HolderReport {
    /// `namespace/name`, or its UID where only the kubelet's checkpoint tells.
    pub pod: String,
    /// Its container.
    pub container: String,
}

/// A look at the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScanReport {
    /// Since it ended.
    pub age_seconds: u64,
    /// How long it took.
    pub milliseconds: f64,
}

/// Something that could not be read of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NoteReport {
    /// The path.
    pub path: String,
    /// What happened.
    pub cause: String,
}

impl Report {
    /// Why the plugin does not do what its config asks for; empty where it does.
    ///
    /// Not a reason: a pool without a device, an unhealthy device, a machine of which a part cannot be read.
    pub fn unready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if let Some(error) = &self.config.error {
            reasons.push(format!("the config cannot be used, so the last one is served on: {error}"));
        }
        for refused in &self.config.refused {
            let how = if refused.served_on { "is served in its last good form" } else { "is not served" };
            reasons.push(format!("{} {how}: {}", refused.resource, refused.reason));
        }
        if self.scan.is_none() {
            reasons.push("the machine was not looked at yet".to_owned());
        }
        for pool in &self.pools {
            if let Some(wanted) = pool.waits_for {
                reasons
                    .push(format!("{} waits for {wanted} devices and has {}", pool.resource, pool.devices));
            } else if pool.is_unheard && pool.devices > 0 {
                let why = pool.refusal.as_ref().unwrap_or(&pool.link);
                reasons.push(format!("the kubelet does not listen to {}: {why}", pool.resource));
            }
        }
        reasons
    }

    /// Says who holds what.
    pub fn tell_holders(&mut self, holders: &Holders) {
        for device in &mut self.devices {
            let of_device = |holders: &std::collections::BTreeMap<String, _>| {
                let is_it = |id: &str| id.split_once("::").map_or(id, |(id, _)| id) == device.id;
                holders.iter().filter(|(id, _)| is_it(id)).map(|(_, holder)| holder).cloned().collect()
            };
            let found: Vec<crate::kubelet::Holder> = match &device.resource {
                Some(resource) => holders.get(resource).map(of_device).unwrap_or_default(),
                None => Vec::new(),
            };
            device.holders = found
                .into_iter()
                .map(|holder| HolderReport { pod: holder.pod, container: holder.container })
                .collect();
            device.holders.sort();
            device.holders.dedup();
        }
        for pool in &mut self.pools {
            let is_held = |device: &&DeviceReport| {
                device.resource.as_ref() == Some(&pool.resource) && !device.holders.is_empty()
            };
            pool.held = self.devices.iter().filter(is_held).count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::Holder;

    #[test]
    fn every_container_that_shares_a_device_is_told_and_the_device_counts_once() {
        let device = |id: &str| DeviceReport {
            id: id.to_owned(),
            resource: Some("x.io/r".to_owned()),
            ..DeviceReport::default()
        };
        let mut report = Report {
            pools: vec![PoolReport { resource: "x.io/r".to_owned(), ..PoolReport::default() }],
            devices: vec![device("0000:79:00.1"), device("0000:79:00.2")],
            ..Report::default()
        };
        let holder = |pod: &str| Holder { pod: pod.to_owned(), container: "c".to_owned() };
        let held = [("0000:79:00.1::0", "ns/b"), ("0000:79:00.1::1", "ns/a"), ("0000:79:00.1::2", "ns/a")];
        let held = held.into_iter().map(|(id, pod)| (id.to_owned(), holder(pod))).collect();
        let others = [("0000:79:00.2".to_owned(), holder("ns/c"))].into();
        let holders = [("x.io/r".to_owned(), held), ("x.io/other".to_owned(), others)].into();
        report.tell_holders(&holders);
        let pods: Vec<&str> = report.devices[0].holders.iter().map(|holder| holder.pod.as_str()).collect();
        assert_eq!((pods, report.pools[0].held), (vec!["ns/a", "ns/b"], 1));
        assert!(report.devices[1].holders.is_empty());
    }
}
