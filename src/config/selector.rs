//! Selector objects.

use jsonc_parser::ast::Object;

use super::entries;
use super::fields::Level;
use super::reader::{At, Key, Reader};
use super::types::{DeviceType, FunctionType, Selector};
use super::words::Words;
use crate::model::{ClassPattern, HexId, IndexRanges, PciAddress};

/// The selector objects of a pool that stands at `pool`.
pub(super) fn read(reader: &mut Reader, key: Key<'_, '_>, pool: &At<'_>) -> Vec<Selector> {
    let at = key.map_or(pool, |(_, at)| at);
    let objects = match key {
        None => Vec::new(),
        Some(_) => match reader.objects(key) {
            Some(objects) => objects,
            None => return Vec::new(),
        },
    };
    if objects.is_empty() {
        if reader.device_type == Some(DeviceType::AuxNetDevice) {
            no_auxiliary_type(reader, at);
        } else {
            everything(reader, at);
        }
    }
    let mut selectors = Vec::new();
    for (object, at) in objects {
        match object {
            Some(object) => selectors.push(selector(reader, object, &at)),
            None => reader.not_an_object(&at, r#"{"vendors": ["8086"]}"#),
        }
    }
    selectors
}

fn selector(reader: &mut Reader, object: &Object<'_>, at: &At<'_>) -> Selector {
    let before = reader.found.len();
    let keys = reader.keys(object, at, Level::Selector);
    let keys = reader.applicable(keys);
    let selector = Selector {
        vendors: reader.list(keys.get("vendors"), str::parse::<HexId>),
        devices: reader.list(keys.get("devices"), str::parse::<HexId>),
        drivers: reader.list(keys.get("drivers"), any),
        pci_addresses: reader.list(keys.get("pciAddresses"), str::parse::<PciAddress>),
        acpi_indexes: reader.list(keys.get("acpiIndexes"), entries::acpi_index),
        aux_types: auxiliary_types(reader, keys.get("auxTypes"), at),
        pf_names: reader.list(keys.get("pfNames"), entries::pf_name),
        root_devices: reader.list(keys.get("rootDevices"), entries::root_device),
        link_types: reader.list(keys.get("linkTypes"), Words::parse),
        ddp_profiles: reader.list(keys.get("ddpProfiles"), any),
        p_keys: reader.list(keys.get("pKeys"), entries::partition_key),
        is_rdma: reader.flag(keys.get("isRdma")).unwrap_or(false),
        vdpa_type: reader.word(keys.get("vdpaType")),
        need_vhost_net: reader.flag(keys.get("needVhostNet")).unwrap_or(false),
        classes: reader.list(keys.get("classes"), str::parse::<ClassPattern>),
        function_types: function_types(reader, keys.get("functionTypes")),
        vf_indexes: reader.list(keys.get("vfIndexes"), str::parse::<IndexRanges>),
        exclude: exclude(reader, keys.get("exclude")),
    };
    if let Some((_, vdpa)) = keys.get("vdpaType")
        && selector.vdpa_type.is_some()
        && selector.is_rdma
    {
        let message = "`vdpaType` and `isRdma` exclude each other; remove one, or write two selector objects";
        reader.error(vdpa, message.to_owned());
    }
    // A selector that could not be read is no missing one.
    if !reader.excluding && selector.takes_everything() && !reader.has_error_since(before) {
        everything(reader, at);
    }
    selector
}

fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn everything(reader: &mut Reader, at: &At<'_>) {
    if let Some(device_type) = reader.device_type {
        let message = format!(
            "without a selector, every device of the type {} is taken; write one, such as \"vendors\": [\"8086\"], \
             unless that is meant",
            device_type.as_str()
        );
        reader.warning(at, message);
    }
}

fn auxiliary_types(reader: &mut Reader, key: Key<'_, '_>, at: &At<'_>) -> Option<Vec<String>> {
    let types = reader.list(key, any);
    if reader.device_type == Some(DeviceType::AuxNetDevice) && !reader.excluding && types.is_none() {
        no_auxiliary_type(reader, at);
    }
    if let (Some((_, at)), Some(types)) = (key, &types)
        && types.iter().any(|kind| kind != "sf")
    {
        let message = "an auxiliary device other than sf cannot be handed out; write \"auxTypes\": [\"sf\"]";
        reader.error(at, message.to_owned());
    }
    types
}

fn no_auxiliary_type(reader: &mut Reader, at: &At<'_>) {
    let message = "a pool of the type auxNetDevice needs `auxTypes`; write \"auxTypes\": [\"sf\"]";
    reader.error(at, message.to_owned());
}

fn function_types(reader: &mut Reader, key: Key<'_, '_>) -> Option<Vec<FunctionType>> {
    let types = reader.list(key, Words::parse)?;
    if let (Some((_, at)), Some(device_type)) = (key, reader.device_type) {
        let auxiliary = device_type == DeviceType::AuxNetDevice;
        let fits = |wanted: &FunctionType| auxiliary == (*wanted == FunctionType::Sf);
        if !types.iter().all(fits) {
            let message = format!(
                "a pool of the type {} has {} functions only; the others match nothing",
                device_type.as_str(),
                if auxiliary { "sf" } else { "pf and vf" }
            );
            reader.warning(at, message);
        }
    }
    Some(types)
}

fn exclude(reader: &mut Reader, key: Key<'_, '_>) -> Option<Box<Selector>> {
    let (object, at) = reader.object(key)?;
    if reader.excluding {
        let message = "`exclude` inside `exclude` is not possible; write the devices that are wanted instead";
        reader.error(&at, message.to_owned());
        return None;
    }
    let before = reader.found.len();
    reader.excluding = true;
    let excluded = selector(reader, object, &at);
    reader.excluding = false;
    if excluded.takes_everything() && !reader.has_error_since(before) {
        let message = "`exclude` names nothing, so nothing is left out; write a selector in it, or remove it";
        reader.warning(&at, message.to_owned());
        return None;
    }
    Some(Box::new(excluded))
}
