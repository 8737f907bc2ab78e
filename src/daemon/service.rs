//! What an endpoint asks of its pool.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use super::step::options;
use super::{CdiDirectory, DeviceInfoDirectory, UacceViews};
use crate::config::Selector;
use crate::handout::{Manner, SharedNodes, handout, nodes};
use crate::host::{self, HostRoot};
use crate::kubelet::{self, Holding, PluginOptions, Refusal};
use crate::model::{Device, DeviceNode, Handout, Health, Mount};
use crate::observe::{ALLOCATED, Metrics};
use crate::pool::{
    Freed, HealthChange, Member, Pool, Warning, health, health_changes, list, prefer, warnings,
};

/// Where a pool writes what others read.
#[derive(Debug, Clone)]
pub struct Outputs {
    /// Device-information files.
    pub device_info: DeviceInfoDirectory,
    /// CDI specs, where devices are handed over through CDI.
    pub cdi: Option<CdiDirectory>,
    /// The kubelet's directory of sockets, whose checkpoint says what containers were given.
    pub kubelet: PathBuf,
    /// Views of `/sys/class/uacce`, where containers see their own engines only.
    pub views: Option<UacceViews>,
}

/// A pool, its host and the files it writes.
///
/// Nothing is remembered as taken: the kubelet keeps those books, and an Allocate can be asked twice. Only the order in
/// which devices were freed is kept, for preferred allocation.
#[derive(Debug)]
pub struct PoolService {
    host: HostRoot,
    outputs: RwLock<Arc<Outputs>>,
    pool: RwLock<Arc<Pool>>,
    freed: Mutex<Freed>,
    metrics: Metrics,
}

impl PoolService {
    /// A service that answers from `pool`.
    pub fn new(host: HostRoot, outputs: Outputs, pool: Pool) -> Self {
        Self {
            host,
            outputs: RwLock::new(Arc::new(outputs)),
            pool: RwLock::new(Arc::new(pool)),
            freed: Mutex::default(),
            metrics: Metrics::default(),
        }
    }

    /// Counts its calls there.
    #[must_use]
    pub fn counted_by(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// From now on, writes there.
    pub fn write_to(&self, outputs: Outputs) {
        *self.outputs.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(outputs);
    }

    fn outputs(&self) -> Arc<Outputs> {
        Arc::clone(&self.outputs.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on, answers from this state of the pool, and brings its files up to date.
    pub fn take(&self, pool: Pool) {
        if let Some(cdi) = &self.outputs().cdi {
            let written = cdi.write(&pool, self.shared_nodes(&pool));
            if let Err((path, error)) = written {
                tracing::error!(path = %path.display(), %error, "cannot write a CDI spec");
            }
        }
        self.outputs().device_info.sweep(&pool.config.resource, |id| host::exists(&self.host, id));
        let before = self.pool();
        for HealthChange { reason, devices } in health_changes(&before, &pool) {
            let (resource, count, devices) = (&pool.config.resource, devices.len(), list(&devices));
            match reason {
                Some(reason) => tracing::warn!(%resource, reason, count, devices, "unhealthy"),
                None => tracing::info!(%resource, count, devices, "healthy again"),
            }
        }
        let known = of_members(&before);
        for warning in of_members(&pool).iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!(resource = %pool.config.resource, %warning, "devices that need care");
        }
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pool);
    }

    /// Whether a device is in this pool.
    pub fn has(&self, id: &str) -> bool {
        self.pool().of_device(id).is_some()
    }

    /// The nodes of a device of this pool as they are now.
    pub fn nodes(&self, id: &str) -> Option<Vec<DeviceNode>> {
        let pool = self.pool();
        let member = pool.member(id)?;
        let device = host::refresh(&self.host, &member.device).ok()?;
        Some(nodes(&pool.config, &device, pool.selector(member), self.shared_nodes(&pool)))
    }

    /// Containers hold exactly these ids of the pool now. A device that they held before and do not any more has just
    /// been freed.
    pub fn hold(&self, held: &BTreeSet<String>) {
        self.freed().hold(held);
    }

    fn freed(&self) -> MutexGuard<'_, Freed> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which shared nodes exist, looked at only where the pool hands them over.
    fn shared_nodes(&self, pool: &Pool) -> SharedNodes {
        match pool.config.selectors.iter().any(|selector| selector.need_vhost_net) {
            true => host::shared_nodes(&self.host),
            false => SharedNodes::default(),
        }
    }

    /// Makes again what a running container was given and a reboot took: device-information files, and the view of its
    /// engines, which may have other names now.
    pub fn restore(&self, ids: &[String]) {
        let pool = self.pool();
        self.freed().take(ids.iter().map(String::as_str));
        let members: Vec<&Member> = ids.iter().filter_map(|id| pool.member(id)).collect();
        let devices: Vec<(Device, Option<&Selector>)> = members
            .iter()
            .filter_map(|member| {
                Some((host::refresh(&self.host, &member.device).ok()?, pool.selector(member)))
            })
            .collect();
        if let Err(refusal) = self.hand_over(&pool, &devices, SharedNodes::default()) {
            tracing::warn!(resource = %pool.config.resource, %refusal, "cannot restore the files of a container");
        }
    }

    /// Makes the answer for one container, and writes its files.
    fn hand_over(
        &self,
        pool: &Pool,
        devices: &[(Device, Option<&Selector>)],
        shared: SharedNodes,
    ) -> Result<Handout, Refusal> {
        let outputs = self.outputs();
        let manner = Manner {
            shared,
            cdi: outputs.cdi.as_ref().map(|cdi| cdi.mode),
            filtered_uacce: outputs.views.is_some(),
        };
        let borrowed: Vec<(&Device, Option<&Selector>)> =
            devices.iter().map(|(device, selector)| (device, *selector)).collect();
        let mut handout = handout(&pool.config, &borrowed, manner);
        let failed = |what: &str, path: &Path, error: std::io::Error| Refusal::Failed {
            id: what.to_owned(),
            reason: format!("cannot write {}: {error}", path.display()),
        };
        if let (Some(views), false) = (&outputs.views, handout.uacce_links.is_empty()) {
            let ids: Vec<&str> = devices.iter().map(|(device, _)| device.id.as_str()).collect();
            let path = views
                .write(&ids, &handout.uacce_links)
                .map_err(|(path, error)| failed(&ids.join(","), &path, error))?;
            handout
                .mounts
                .push(Mount { host: path.display().to_string(), container: UacceViews::CLASS.to_owned() });
        }
        for file in &handout.files {
            outputs
                .device_info
                .write(file)
                .map_err(|(path, error)| failed(file.device.as_str(), &path, error))?;
        }
        Ok(handout)
    }

    /// Brings the spec up to date where a device is not as the scan saw it: a renumbered group, say.
    fn refresh_spec(
        &self,
        pool: &Pool,
        devices: &HashMap<&str, Device>,
        shared: SharedNodes,
    ) -> Result<(), Refusal> {
        let Some(cdi) = &self.outputs().cdi else { return Ok(()) };
        let current = |member: &'_ Member| devices.get(member.device.id.as_str());
        let Some(changed) =
            pool.members.iter().find(|member| current(member).is_some_and(|now| now != &*member.device))
        else {
            return Ok(());
        };
        let fresh = Pool {
            config: Arc::clone(&pool.config),
            members: pool
                .members
                .iter()
                .map(|member| Member {
                    device: current(member)
                        .map_or_else(|| Arc::clone(&member.device), |now| Arc::new(now.clone())),
                    ..member.clone()
                })
                .collect(),
            lost: Vec::new(),
            waits_for: None,
        };
        cdi.write(&fresh, shared).map_err(|(path, error)| Refusal::Failed {
            id: changed.device.id.to_string(),
            reason: format!("cannot write {}: {error}", path.display()),
        })
    }

    fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The members behind ids of one container, each once, however many shares of it are asked for.
    fn members<'a>(pool: &'a Pool, ids: &[String]) -> Result<Vec<&'a Member>, Refusal> {
        let mut seen = HashSet::new();
        let members: Result<Vec<&Member>, Refusal> = ids
            .iter()
            .map(|id| {
                if !seen.insert(id) {
                    return Err(Refusal::Repeated { id: id.clone() });
                }
                let resource = || pool.config.resource.to_string();
                pool.member(id).ok_or_else(|| Refusal::Unknown { id: id.clone(), resource: resource() })
            })
            .collect();
        let mut once = HashSet::new();
        Ok(members?.into_iter().filter(|member| once.insert(&member.device.id)).collect())
    }

    /// The device as it is now. Group, node and driver may have changed since the scan.
    fn current(&self, pool: &Pool, member: &Member) -> Result<Device, Refusal> {
        let known = &member.device;
        let selector = pool.selector(member);
        let not_ready = |reason: String| Refusal::NotReady { id: known.id.to_string(), reason };
        // What the kubelet was told is unhealthy may be so for what no file of the device shows: its link, say.
        if let Health::Unhealthy(reason) = &member.health {
            return Err(Refusal::Unhealthy { id: known.id.to_string(), reason: reason.clone() });
        }
        let device = host::refresh(&self.host, known).map_err(|note| not_ready(note.to_string()))?;
        if device.driver != known.driver {
            let name = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "no driver".to_owned());
            return Err(not_ready(format!(
                "its driver was {}, now it is {}",
                name(&known.driver),
                name(&device.driver)
            )));
        }
        if let Health::Unhealthy(reason) = health(&device, &pool.config, selector) {
            return Err(Refusal::Unhealthy { id: known.id.to_string(), reason });
        }
        let with_rdma = selector.is_some_and(|selector| selector.is_rdma);
        match device.lost_handle(known, with_rdma) {
            None => Ok(device),
            Some(handle) => Err(not_ready(format!("its {handle} is gone"))),
        }
    }

    /// What each container receives.
    fn answer(&self, pool: &Pool, containers: &[Vec<String>]) -> Result<Vec<Handout>, Refusal> {
        let ids = containers;
        let containers: Vec<Vec<&Member>> =
            containers.iter().map(|ids| Self::members(pool, ids)).collect::<Result<_, _>>()?;
        let mut devices: HashMap<&str, Device> = HashMap::new();
        for member in containers.iter().flatten() {
            let device = self.current(pool, member)?;
            devices.insert(member.device.id.as_str(), device);
        }
        let shared = self.shared_nodes(pool);
        self.refresh_spec(pool, &devices, shared)?;
        // Nothing is written for any container before every device of each has been found good.
        let answers = containers
            .iter()
            .map(|members| {
                let devices: Vec<(Device, Option<&Selector>)> = members
                    .iter()
                    .filter_map(|member| {
                        Some((devices.get(member.device.id.as_str())?.clone(), pool.selector(member)))
                    })
                    .collect();
                self.hand_over(pool, &devices, shared)
            })
            .collect::<Result<_, _>>()?;
        for device in devices.values().filter(|device| device.lacks_iommu()) {
            self.metrics.without_iommu(&pool.config.resource);
            tracing::warn!(
                resource = %pool.config.resource, device = %device.id,
                "handed over without an IOMMU: its container reaches all memory of the node"
            );
        }
        self.freed().take(ids.iter().flatten().map(String::as_str));
        Ok(answers)
    }

    /// Whether the nodes that a container was given are those of its devices still. The kubelet gives them again whenever it
    /// starts the container, and does not ask; a number of a group may be another device's by then.
    fn still_has(&self, pool: &Pool, ids: &[String], nodes: &BTreeSet<String>) -> Result<(), Refusal> {
        let resource = pool.config.resource.to_string();
        // Where it is not known what a container was given, there is nothing to compare.
        let Ok(holdings) = kubelet::holdings_from_checkpoint(&self.outputs().kubelet) else { return Ok(()) };
        let is_it = |holding: &&Holding| {
            holding.resource == resource && ids.iter().all(|id| holding.ids.contains(id))
        };
        let Some(holding) = holdings.iter().find(is_it) else { return Ok(()) };
        match holding.nodes.iter().find(|node| !nodes.contains(*node)) {
            None => Ok(()),
            Some(node) => Err(Refusal::NotReady {
                id: ids.join(","),
                reason: format!(
                    "the container was given {node}, which is not its device's any more; delete the pod, and its \
                     successor gets the right one"
                ),
            }),
        }
    }
}

impl crate::kubelet::Pool for PoolService {
    fn options(&self) -> PluginOptions {
        options(&self.pool().config)
    }

    fn allocate(&self, containers: &[Vec<String>]) -> Result<Vec<Handout>, Refusal> {
        let (pool, started) = (self.pool(), Instant::now());
        let answer = self.answer(&pool, containers);
        let outcome = answer.as_ref().map_or_else(Refusal::word, |_| ALLOCATED);
        self.metrics.allocation(&pool.config.resource, outcome, started.elapsed());
        answer
    }

    fn prefer(
        &self,
        available: &[String],
        must_include: &[String],
        size: usize,
    ) -> Result<Vec<String>, Refusal> {
        let mut freed = self.freed();
        // What must be included is the pod's own already.
        freed.free(available.iter().filter(|id| !must_include.contains(id)).map(String::as_str));
        prefer(&self.pool(), &freed, available, must_include, size)
            .map_err(|reason| Refusal::Impossible { reason })
    }

    fn pre_start(&self, ids: &[String]) -> Result<(), Refusal> {
        let pool = self.pool();
        let shared = self.shared_nodes(&pool);
        let mut nodes = BTreeSet::new();
        for member in Self::members(&pool, ids)? {
            let device = self.current(&pool, member)?;
            let now = crate::handout::nodes(&pool.config, &device, pool.selector(member), shared);
            nodes.extend(now.into_iter().map(|node| node.host));
        }
        self.still_has(&pool, ids, &nodes)
    }
}

fn of_members(pool: &Pool) -> Vec<Warning> {
    warnings(pool.members.iter().map(|member| &*member.device))
}
