//! vDPA devices below a function
//! (<https://github.com/torvalds/linux/blob/master/Documentation/ABI/testing/sysfs-bus-vdpa>).

use std::io;

use super::HostRoot;
use crate::model::{Vdpa, VdpaType};

/// The vDPA device of a function; `None` where it has none.
pub(super) fn read(host: &HostRoot, directory: &str, entries: &[String]) -> io::Result<Option<Vdpa>> {
    let is_vdpa =
        |entry: &&String| entry.strip_prefix("vdpa").is_some_and(|number| number.parse::<u32>().is_ok());
    let Some(name) = entries.iter().find(is_vdpa) else { return Ok(None) };
    let place = format!("{directory}/{name}");
    let below = host.list(&place)?;
    let driver = match below.iter().any(|entry| entry == "driver") {
        true => host.link_name(&format!("{place}/driver"))?,
        false => String::new(),
    };
    let kind = match driver.as_str() {
        "vhost_vdpa" => Some(VdpaType::Vhost),
        "virtio_vdpa" => Some(VdpaType::Virtio),
        _ => None,
    };
    let vhost = below.iter().find_map(|entry| entry.strip_prefix("vhost-vdpa-")?.parse().ok());
    Ok(Some(Vdpa { name: name.clone(), kind, vhost }))
}
