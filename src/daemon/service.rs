//! What an endpoint asks of its pool.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use super::DeviceInfoDirectory;
use crate::config::Selector;
use crate::handout::handout;
use crate::host::{self, HostRoot};
use crate::kubelet::{PluginOptions, Refusal};
use crate::model::{Device, Handout, Health};
use crate::pool::{Member, Pool, health, prefer};

/// A pool, its host and the files it writes.
///
/// Nothing is remembered as taken: the kubelet keeps those books, and an Allocate can be asked twice.
#[derive(Debug)]
pub struct PoolService {
    host: HostRoot,
    files: DeviceInfoDirectory,
    pool: RwLock<Arc<Pool>>,
}

impl PoolService {
    /// A service that answers from `pool`.
    pub fn new(host: HostRoot, files: DeviceInfoDirectory, pool: Pool) -> Self {
        Self { host, files, pool: RwLock::new(Arc::new(pool)) }
    }

    /// From now on, answers from this state of the pool.
    pub fn take(&self, pool: Pool) {
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pool);
    }

    fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The members behind ids of one container, each once.
    fn members<'a>(pool: &'a Pool, ids: &[String]) -> Result<Vec<&'a Member>, Refusal> {
        let mut seen = HashSet::new();
        ids.iter()
            .map(|id| {
                if !seen.insert(id) {
                    return Err(Refusal::Repeated { id: id.clone() });
                }
                let resource = || pool.config.resource.to_string();
                pool.member(id).ok_or_else(|| Refusal::Unknown { id: id.clone(), resource: resource() })
            })
            .collect()
    }

    /// The device as it is now. Group, node and driver may have changed since the scan.
    fn current(&self, pool: &Pool, member: &Member) -> Result<Device, Refusal> {
        let known = &member.device;
        let selector = pool.selector(member);
        let not_ready = |reason: String| Refusal::NotReady { id: known.id.to_string(), reason };
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
}

impl crate::kubelet::Pool for PoolService {
    fn options(&self) -> PluginOptions {
        let config = &self.pool().config;
        PluginOptions {
            preferred_allocation: !config.allocation_policy.is_empty(),
            pre_start: config.pre_start_check,
        }
    }

    fn allocate(&self, containers: &[Vec<String>]) -> Result<Vec<Handout>, Refusal> {
        let pool = self.pool();
        let containers: Vec<Vec<&Member>> =
            containers.iter().map(|ids| Self::members(&pool, ids)).collect::<Result<_, _>>()?;
        let mut devices: HashMap<&str, Device> = HashMap::new();
        for member in containers.iter().flatten() {
            let device = self.current(&pool, member)?;
            devices.insert(member.device.id.as_str(), device);
        }
        let wants_vhost =
            |member: &&Member| pool.selector(member).is_some_and(|selector| selector.need_vhost_net);
        let shared = match containers.iter().flatten().any(wants_vhost) {
            true => host::shared_nodes(&self.host),
            false => Default::default(),
        };
        let handouts: Vec<Handout> = containers
            .iter()
            .map(|members| {
                let devices: Vec<(&Device, Option<&Selector>)> = members
                    .iter()
                    .filter_map(|member| {
                        Some((devices.get(member.device.id.as_str())?, pool.selector(member)))
                    })
                    .collect();
                handout(&pool.config, &devices, shared)
            })
            .collect();
        // Nothing is written before every device of every container has been found good.
        for file in handouts.iter().flat_map(|handout| &handout.files) {
            self.files.write(file).map_err(|(path, error)| Refusal::Failed {
                id: file.device.to_string(),
                reason: format!("cannot write {}: {error}", path.display()),
            })?;
        }
        Ok(handouts)
    }

    fn prefer(
        &self,
        available: &[String],
        must_include: &[String],
        size: usize,
    ) -> Result<Vec<String>, Refusal> {
        prefer(&self.pool(), available, must_include, size).map_err(|reason| Refusal::Impossible { reason })
    }

    fn pre_start(&self, ids: &[String]) -> Result<(), Refusal> {
        let pool = self.pool();
        for member in Self::members(&pool, ids)? {
            self.current(&pool, member)?;
        }
        Ok(())
    }
}
