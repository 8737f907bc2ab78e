//! uacce entries of Kunpeng accelerators
//! (<https://github.com/torvalds/linux/blob/master/Documentation/ABI/testing/sysfs-driver-uacce>).

use std::io;

use super::directory::Directory;
use crate::model::Uacce;

/// The uacce entry of a function; `None` where its driver made none (`uacce_mode=0`).
pub(super) fn read(function: &Directory<'_>) -> io::Result<Option<Uacce>> {
    if !function.has("uacce") {
        return Ok(None);
    }
    let Some(name) = function.list("uacce")?.into_iter().next() else {
        return Ok(None);
    };
    let place = format!("uacce/{name}");
    // The drivers of KAE 1.0 keep the attributes one directory further down.
    let attributes = match function.list(&place)?.iter().any(|entry| entry == "attrs") {
        true => format!("{place}/attrs"),
        false => place,
    };
    let attribute = |name: &str| function.read(&format!("{attributes}/{name}")).ok();
    Ok(Some(Uacce {
        api: attribute("api"),
        algorithms: attribute("algorithms")
            .map(|text| text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
            .unwrap_or_default(),
        isolated: attribute("isolate").is_some_and(|text| text == "1"),
        dev_state: attribute("dev_state").and_then(|text| text.parse().ok()),
        class_link: function.host().link(&format!("/sys/class/uacce/{name}")).ok(),
        name,
    }))
}
