//! Why a device is in a pool, or not; and why a pool holds what it holds.

use std::collections::BTreeMap;

use super::{Pool, Pools};
use crate::config::{Config, PoolConfig};
use crate::model::{Device, DeviceId, Health, Inventory};
use crate::select::{Matcher, Miss};

/// A device against every pool.
#[derive(Debug, Clone)]
pub struct DeviceExplanation {
    /// The device.
    pub device: DeviceId,
    /// One entry a pool, in file order.
    pub pools: Vec<Judgement>,
    /// The one sentence that answers the question.
    pub sentence: String,
}

/// A device against one pool.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The extended resource.
    pub resource: String,
    /// The device belongs to this pool.
    pub member: bool,
    /// It would, but an earlier pool took it.
    pub lost_to: Option<String>,
    /// One entry a selector object.
    pub objects: Vec<ObjectJudgement>,
}

/// A device against one selector object: each test with what it said.
#[derive(Debug, Clone)]
pub struct ObjectJudgement {
    /// Key and answer, in the order in which they are applied.
    pub tests: Vec<(&'static str, Result<(), Miss>)>,
}

impl ObjectJudgement {
    /// The first miss.
    pub fn miss(&self) -> Option<&Miss> {
        self.tests.iter().find_map(|(_, answer)| answer.as_ref().err())
    }
}

/// Asks every pool about one device.
pub fn explain_device(config: &Config, pools: &Pools, device: &Device) -> DeviceExplanation {
    let mut explained = Vec::new();
    let mut owner: Option<(String, Health)> = None;
    for (pool_config, pool) in config.pools.iter().zip(&pools.pools) {
        let matcher = Matcher::new(pool_config);
        let objects = matcher.objects().iter().map(|tests| ObjectJudgement {
            tests: tests.iter().map(|test| (test.key, test.ask(device))).collect(),
        });
        let objects: Vec<ObjectJudgement> = objects.collect();
        let resource = pool_config.resource.to_string();
        let member = pool.of_device(device.id.as_str());
        let matches = objects.iter().any(|object| object.miss().is_none());
        let lost_to = owner.as_ref().filter(|_| matches).map(|(name, _)| name.clone());
        if let Some(member) = member {
            owner = Some((resource.clone(), member.health.clone()));
        }
        explained.push(Judgement { resource, member: member.is_some(), lost_to, objects });
    }
    let sentence = sentence(device, owner.as_ref(), &explained);
    DeviceExplanation { device: device.id.clone(), pools: explained, sentence }
}

fn sentence(device: &Device, owner: Option<&(String, Health)>, pools: &[Judgement]) -> String {
    let id = &device.id;
    if let Some((resource, health)) = owner {
        return match health {
            Health::Healthy => format!("{id} is in pool {resource}."),
            Health::Unhealthy(reason) => format!("{id} is in pool {resource}, but unhealthy: {reason}."),
        };
    }
    // The selector object that came nearest tells most.
    let nearest = pools
        .iter()
        .flat_map(|pool| pool.objects.iter().map(move |object| (pool, object)))
        .filter_map(|(pool, object)| {
            let miss = object.miss()?;
            let passed = object.tests.iter().filter(|(_, answer)| answer.is_ok()).count();
            Some((object.tests.len() - passed, passed, pool, miss))
        })
        .min_by_key(|&(missed, passed, ..)| (missed, std::cmp::Reverse(passed)));
    match nearest {
        Some((.., pool, miss)) => format!("{id} is not in pool {}: {miss}.", pool.resource),
        None => format!("{id} is in no pool: the config has none that can be served."),
    }
}

/// A pool and the way to its devices.
#[derive(Debug, Clone)]
pub struct PoolExplanation {
    /// The extended resource.
    pub resource: String,
    /// One entry a selector object: its tests, and how many devices were left after each.
    pub objects: Vec<Vec<Step>>,
    /// The devices with their health.
    pub members: Vec<(DeviceId, Health)>,
    /// Devices that an earlier pool took, with its name.
    pub lost: Vec<(DeviceId, String)>,
    /// The one sentence that answers the question.
    pub sentence: String,
}

/// A test, applied to the devices that the tests before it left.
#[derive(Debug, Clone)]
pub struct Step {
    /// Key of the test.
    pub key: &'static str,
    /// How many devices were left.
    pub left: usize,
    /// What was wanted, where it refused a device.
    pub wanted: Option<String>,
    /// What was found instead, with how many devices had it, most first.
    pub found: Vec<(String, usize)>,
}

/// Follows the devices through the selector objects of one pool.
pub fn explain_pool(
    config: &Config,
    pools: &Pools,
    inventory: &Inventory,
    position: usize,
) -> Option<PoolExplanation> {
    let pool_config = config.pools.get(position)?;
    let pool = pools.pools.get(position)?;
    let matcher = Matcher::new(pool_config);
    let objects: Vec<Vec<Step>> = matcher
        .objects()
        .iter()
        .map(|tests| {
            let mut left: Vec<&Device> = inventory.devices().iter().map(AsRef::as_ref).collect();
            let step = |test: &crate::select::Test<'_>| {
                let mut wanted = None;
                let mut found: BTreeMap<String, usize> = BTreeMap::new();
                left.retain(|device| match test.ask(device) {
                    Ok(()) => true,
                    Err(miss) => {
                        wanted = Some(miss.wanted);
                        *found.entry(miss.found).or_default() += 1;
                        false
                    }
                });
                let mut found: Vec<(String, usize)> = found.into_iter().collect();
                found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
                Step { key: test.key, left: left.len(), wanted, found }
            };
            tests.iter().map(step).collect()
        })
        .collect();
    let name = |position: usize| config.pools.get(position).map(|pool| pool.resource.to_string());
    Some(PoolExplanation {
        resource: pool_config.resource.to_string(),
        sentence: pool_sentence(pool_config, pool, &objects),
        objects,
        members: pool
            .members
            .iter()
            .map(|member| (member.device.id.clone(), member.health.clone()))
            .collect(),
        lost: pool.lost.iter().filter_map(|(id, owner)| Some((id.clone(), name(*owner)?))).collect(),
    })
}

fn pool_sentence(config: &PoolConfig, pool: &Pool, objects: &[Vec<Step>]) -> String {
    let resource = &config.resource;
    let healthy = pool.members.iter().filter(|member| member.health.is_healthy()).count();
    match (pool.members.len(), pool.lost.len()) {
        (0, 0) => {
            let emptied = objects.iter().flatten().find(|step| step.left == 0);
            match emptied {
                Some(Step { key, wanted: Some(wanted), found, .. }) => {
                    let found: Vec<&str> = found.iter().take(3).map(|(text, _)| text.as_str()).collect();
                    format!(
                        "{resource} is empty: `{key}` left no device; wanted {wanted}, found {}.",
                        found.join("; ")
                    )
                }
                _ => format!(
                    "{resource} is empty: the host has no device of type {}.",
                    config.device_type.as_str()
                ),
            }
        }
        (0, lost) => format!("{resource} is empty: earlier pools took the {lost} devices that match."),
        (all, _) if healthy == all => format!("{resource} has {all} devices, all healthy."),
        (all, _) => format!("{resource} has {all} devices, {healthy} of them healthy."),
    }
}
