//! Entries of `resourceList`.

use std::collections::BTreeMap;

use jsonc_parser::ast::Object;

use super::entries;
use super::fields::Level;
use super::hint;
use super::reader::{At, Key, Keys, Reader, described, is_null};
use super::selector;
use super::types::{
    AdditionalInfo, AllocationPolicy, DeviceType, HealthPolicy, InfoTarget, PoolConfig, WaitFor,
};
use super::words::Words;
use crate::model::{ResourceName, variable_name};

/// A pool as far as it could be read.
pub(super) struct Read<'v> {
    /// `None` where its name or type is unusable; it may be there though the pool has errors.
    pub(super) config: Option<PoolConfig>,
    /// `prefix/name` as written.
    pub(super) resource: Option<String>,
    /// Where its name stands.
    pub(super) name: Option<At<'v>>,
}

/// Reads the pool at `position`, which stands at `at`.
pub(super) fn read<'v>(
    reader: &mut Reader,
    object: Option<&'v Object<'v>>,
    at: &At<'v>,
    position: usize,
    default_prefix: &str,
) -> Read<'v> {
    reader.pool = Some(position);
    let Some(object) = object else {
        reader.not_an_object(at, r#"{"resourceName": "nic", "selectors": {"vendors": ["8086"]}}"#);
        return Read { config: None, resource: None, name: None };
    };
    let keys = reader.keys(object, at, Level::Pool);
    reader.device_type = device_type(reader, keys.get("deviceType"), object);
    let keys = reader.applicable(keys);
    let (resource, written, name) = resource(reader, &keys, at, default_prefix);

    let exclude_topology = reader.flag(keys.get("excludeTopology")).unwrap_or(false);
    let selectors = selector::read(reader, keys.get("selectors"), at);
    let additional_info = additional_info(reader, keys.get("additionalInfo"));
    let allocation_policy = allocation_policy(reader, keys.get("allocationPolicy"));
    let health = health(reader, keys.get("health"));
    let replicas = reader.count(keys.get("replicas")).unwrap_or(1);
    let wait_for = wait_for(reader, keys.get("waitFor"));
    let settle = reader.duration(keys.get("settle"));
    let pre_start_check = reader.flag(keys.get("preStartCheck")).unwrap_or(false);
    let vfio = reader.word(keys.get("vfio")).unwrap_or_default();
    let allow_no_iommu = reader.flag(keys.get("allowNoIommu")).unwrap_or(true);
    let allow_in_use = reader.list(keys.get("allowInUse"), entries::device_id).unwrap_or_default();
    let uacce_view = reader.word(keys.get("uacceView")).unwrap_or_default();

    let config = resource.zip(reader.device_type).map(|(resource, device_type)| PoolConfig {
        position,
        resource,
        device_type,
        exclude_topology,
        selectors,
        additional_info,
        allocation_policy,
        health,
        replicas,
        wait_for,
        settle: settle.unwrap_or(PoolConfig::SETTLE),
        pre_start_check,
        vfio,
        allow_no_iommu,
        allow_in_use,
        uacce_view,
    });
    Read { config, resource: written, name }
}

fn device_type(reader: &mut Reader, key: Key<'_, '_>, pool: &Object<'_>) -> Option<DeviceType> {
    let Some((_, at)) = key else {
        return Some(DeviceType::default());
    };
    let (text, _) = reader.text(key)?;
    if text.is_empty() {
        return Some(DeviceType::default());
    }
    let message = match (hint::old_device_type(text, pool), DeviceType::parse(text)) {
        (Some(message), _) | (None, Err(message)) => message,
        (None, Ok(device_type)) => return Some(device_type),
    };
    reader.error(at, message);
    None
}

fn resource<'v>(
    reader: &mut Reader,
    keys: &Keys<'v>,
    pool: &At<'v>,
    default_prefix: &str,
) -> (Option<ResourceName>, Option<String>, Option<At<'v>>) {
    let prefix_key = keys.get("resourcePrefix");
    let prefix = reader.text(prefix_key);
    let prefix_is_bad = prefix_key.is_some() && prefix.is_none();
    let prefix = prefix.map(|(prefix, _)| prefix).filter(|prefix| !prefix.is_empty());
    let prefix = prefix.unwrap_or(default_prefix);
    let name_key = keys.get("resourceName");
    let Some((name, at)) = reader.text(name_key) else {
        if name_key.is_none() {
            let message = "a pool needs `resourceName`; write \"resourceName\": \"sriov_net\"";
            reader.error(pool, message.to_owned());
        }
        return (None, None, None);
    };
    let written = Some(format!("{prefix}/{name}"));
    if prefix_is_bad {
        return (None, written, None);
    }
    match ResourceName::new(prefix, name) {
        Ok(resource) => (Some(resource), written, Some(at)),
        Err(error) => {
            use crate::model::InvalidResourceName as Invalid;
            let of_prefix = matches!(error, Invalid::Prefix(_) | Invalid::Reserved(_));
            let at = prefix_key.filter(|_| of_prefix).map_or(&at, |(_, at)| at);
            reader.error(at, error.to_string());
            (None, written, None)
        }
    }
}

fn allocation_policy(reader: &mut Reader, key: Key<'_, '_>) -> Vec<AllocationPolicy> {
    let mut policies: Vec<AllocationPolicy> = Vec::new();
    for policy in reader.list(key, AllocationPolicy::parse).unwrap_or_default() {
        match (policies.contains(&policy), key) {
            (true, Some((_, at))) => {
                reader.warning(at, "a policy stands here more than once; remove the later ones".to_owned());
            }
            _ => policies.push(policy),
        }
    }
    policies
}

fn health(reader: &mut Reader, key: Key<'_, '_>) -> HealthPolicy {
    let default = HealthPolicy::default();
    let Some((object, at)) = reader.object(key) else {
        return default;
    };
    let keys = reader.keys(object, &at, Level::Health);
    let keys = reader.applicable(keys);
    HealthPolicy {
        link: reader.word(keys.get("link")).unwrap_or(default.link),
        down_after: reader.duration(keys.get("downAfter")).unwrap_or(default.down_after),
        up_after: reader.duration(keys.get("upAfter")).unwrap_or(default.up_after),
    }
}

fn wait_for(reader: &mut Reader, key: Key<'_, '_>) -> Option<WaitFor> {
    let (object, at) = reader.object(key)?;
    let keys = reader.keys(object, &at, Level::WaitFor);
    let keys = reader.applicable(keys);
    let devices = keys.get("devices");
    if devices.is_none() {
        reader.error(&at, "`waitFor` needs `devices`; write \"waitFor\": {\"devices\": 8}".to_owned());
    }
    let devices = reader.count(devices);
    let timeout = reader.duration(keys.get("timeout")).unwrap_or(WaitFor::TIMEOUT);
    devices.map(|devices| WaitFor { devices, timeout })
}

/// No message here may show a value.
fn additional_info(reader: &mut Reader, key: Key<'_, '_>) -> AdditionalInfo {
    let mut info: BTreeMap<InfoTarget, BTreeMap<String, String>> = BTreeMap::new();
    let Some((object, at)) = reader.object(key) else {
        return AdditionalInfo::default();
    };
    for target in reader.members(object, &at) {
        let parsed = match target.key {
            "*" => Ok(InfoTarget::Every),
            id => entries::device_id(id).map(InfoTarget::Device),
        };
        let id = match parsed {
            Ok(id) => id,
            Err(message) => {
                reader.entry_error(&target.at.path, target.key_span, message + ", or * for every device");
                continue;
            }
        };
        let Some(values) = target.at.value.as_object() else {
            if !is_null(target.at.value) {
                let is = described(target.at.value);
                let message = format!(
                    "`{}` is {is}; write an object of strings, such as {{\"zone\": \"a\"}}",
                    target.key
                );
                reader.error(&target.at, message);
            }
            continue;
        };
        if info.contains_key(&id) {
            reader.repeated(target.key, &target.at.path, target.key_span);
        }
        let entry = info.entry(id).or_default();
        for member in reader.members(values, &target.at) {
            match member.at.value.as_string_lit() {
                Some(text) => {
                    if entry.insert(member.key.to_owned(), text.value.to_string()).is_some() {
                        reader.repeated(member.key, &member.at.path, member.key_span);
                    }
                }
                None if is_null(member.at.value) => {}
                None => {
                    let is = described(member.at.value);
                    let message =
                        format!("the value of `{}` is {is}; write a string in double quotes", member.key);
                    reader.error(&member.at, message);
                }
            }
        }
    }
    AdditionalInfo(info)
}

/// Notes pools that share a name, which spoils the later one, and names whose variables collide.
pub(super) fn compare_names(reader: &mut Reader, pools: &[(usize, Read<'_>)]) {
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    let mut variables: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (position, pool) in pools {
        let (Some(at), Some(written)) = (&pool.name, &pool.resource) else {
            continue;
        };
        reader.pool = Some(*position);
        if let Some(first) = owners.get(written) {
            let message = format!(
                "`{written}` is the name of resourceList[{first}] already, and that pool keeps it; write another name, \
                 or one pool with a list of selectors"
            );
            reader.error(at, message);
            continue;
        }
        owners.insert(written.clone(), *position);
        let (prefix, name) = written.split_once('/').unwrap_or(("", written));
        let variable = variable_name(prefix, name);
        let posix: String =
            variable.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let names = [variable, posix];
        let own: Vec<String> =
            names.iter().cloned().chain(names.iter().map(|name| format!("{name}_INFO"))).collect();
        if let Some((variable, (_, other))) =
            own.iter().find_map(|variable| variables.get_key_value(variable))
        {
            let message = format!(
                "`{written}` and `{other}` share the environment variable {variable}, so a container with both sees \
                 only one; write another name"
            );
            reader.warning(at, message);
        }
        for variable in own {
            variables.entry(variable).or_insert_with(|| (*position, written.clone()));
        }
    }
}
