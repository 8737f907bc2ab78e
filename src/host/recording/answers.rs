//! Reads the answers of netlink in a recording.

use super::format::{PROTOCOLS, ROUTE_KINDS};
use super::words::Words;
use super::{RecordedDevlink, RecordedLink, RecordedRoute};
use crate::host::netlink::{Family, TABLE_MAIN};

pub(super) fn read_link(words: &mut Words<'_>) -> Result<RecordedLink, String> {
    const SHAPE: &str = "write `link INDEX NAME`, then any of `up`, `carrier`, `no-carrier`, `altname=`, `master=`, `lower=`, `kind=`";
    let index = words.next_word()?.ok_or(SHAPE)?;
    let mut link = RecordedLink {
        index: index.parse().map_err(|_| SHAPE)?,
        name: words.next_word()?.ok_or(SHAPE)?,
        ..RecordedLink::default()
    };
    while let Some((key, value)) = words.next_pair()? {
        match (key, value) {
            ("up", None) => link.up = true,
            ("carrier", None) => link.carrier = Some(true),
            ("no-carrier", None) => link.carrier = Some(false),
            ("altname", Some(name)) => link.alternative_names.push(name),
            ("master", Some(name)) => once(key, &mut link.master, name)?,
            ("lower", Some(name)) => once(key, &mut link.lower, name)?,
            ("kind", Some(kind)) => link.kind = kind,
            _ => return Err(format!("`{key}` does not belong here; {SHAPE}")),
        }
    }
    Ok(link)
}

pub(super) fn read_route(words: &mut Words<'_>) -> Result<RecordedRoute, String> {
    const SHAPE: &str = "write `route inet default` or `route inet6 default`, then any of `dev=`, `via=`, `table=`, `proto=`, `metric=`, `type=`";
    let family = match words.next_word()?.as_deref() {
        Some("inet") => Family::Inet,
        Some("inet6") => Family::Inet6,
        _ => return Err(SHAPE.to_owned()),
    };
    if words.next_word()?.as_deref() != Some("default") {
        return Err(format!("only default routes are recorded; {SHAPE}"));
    }
    let mut route = RecordedRoute { family, ..RecordedRoute::default() };
    while let Some((key, value)) = words.next_pair()? {
        let value = value.ok_or_else(|| format!("`{key}` does not belong here; {SHAPE}"))?;
        let bad = |form: &str| format!("`{key}={value}` is wrong; write {form}");
        match key {
            "dev" => route.interfaces.push(value),
            "via" => {
                let address = value.parse().map_err(|_| bad("an IP address"))?;
                once(key, &mut route.gateway, address)?;
            }
            "table" if value == "main" => route.table = TABLE_MAIN,
            "table" => route.table = value.parse().map_err(|_| bad("`main` or a number"))?,
            "proto" => {
                let known = PROTOCOLS.iter().find(|(name, _)| *name == value);
                route.protocol = match known {
                    Some((_, number)) => *number,
                    None => value.parse().map_err(|_| bad("kernel, boot, static, ra, dhcp or a number"))?,
                };
            }
            "metric" => route.metric = value.parse().map_err(|_| bad("a number"))?,
            "type" if ROUTE_KINDS.contains(&value.as_str()) => route.kind = value,
            "type" => return Err(bad("unicast, blackhole, unreachable or prohibit")),
            _ => return Err(format!("`{key}` does not belong here; {SHAPE}")),
        }
    }
    Ok(route)
}

pub(super) fn read_devlink(words: &mut Words<'_>) -> Result<RecordedDevlink, String> {
    const SHAPE: &str = "write `devlink BUS/DEVICE`, then any of `eswitch=` with legacy, switchdev or EPERM, `enable_rdma=` with true or false, `info.KEY=VALUE`";
    let device = words.next_word()?.filter(|word| word.contains('/')).ok_or(SHAPE)?;
    let mut devlink = RecordedDevlink { device, ..RecordedDevlink::default() };
    while let Some((key, value)) = words.next_pair()? {
        let info = key.strip_prefix("info.").filter(|key| !key.is_empty());
        match (key, info, value) {
            ("eswitch", _, Some(mode)) if matches!(mode.as_str(), "legacy" | "switchdev" | "EPERM") => {
                once(key, &mut devlink.eswitch, mode)?;
            }
            ("enable_rdma", _, Some(flag)) => {
                let flag = flag.parse().map_err(|_| format!("`{key}={flag}` is wrong; {SHAPE}"))?;
                once(key, &mut devlink.enable_rdma, flag)?;
            }
            (_, Some(info), Some(value)) => {
                devlink.info.insert(info.to_owned(), value);
            }
            _ => return Err(format!("`{key}` does not belong here; {SHAPE}")),
        }
    }
    Ok(devlink)
}

fn once<T>(key: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}=` is there twice; write it once")),
    }
}
