//! vDPA devices below a function
//! (<https://github.com/torvalds/linux/blob/master/Documentation/ABI/testing/sysfs-bus-vdpa>).

use std::io;

use super::directory::Directory;
use crate::model::{Vdpa, VdpaType};

/// The vDPA device of a function; `None` where it has none.
pub(super) fn read(function: &Directory<'_>) -> io::Result<Option<Vdpa>> {
    let is_vdpa =
        |entry: &&String| entry.strip_prefix("vdpa").is_some_and(|number| number.parse::<u32>().is_ok());
    let Some(name) = function.entries().iter().find(is_vdpa) else { return Ok(None) };
    let below = function.list(name)?;
    let driver = match below.iter().any(|entry| entry == "driver") {
        true => function.link_name(&format!("{name}/driver"))?,
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
