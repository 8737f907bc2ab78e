//! RDMA devices below a function.

use std::io;

use super::directory::Directory;
use crate::model::Rdma;

/// The RDMA devices of a function with their character devices; `None` where it has none.
///
/// An RDMA device and its character devices hang below the function, each in a directory named like its class. In
/// exclusive mode (`rdma system set netns exclusive`) a device that has moved into a pod leaves its directory behind
/// empty: then the function has RDMA, only not here.
pub(super) fn read(function: &Directory<'_>, with_p_key: bool) -> io::Result<Option<Rdma>> {
    let host = function.host();
    if !function.has("infiniband") {
        return Ok(None);
    }
    let list = |class: &str| match function.has(class) {
        true => function.list(class),
        false => Ok(Vec::new()),
    };
    let named = |names: &[String], stem: &str| -> Vec<String> {
        names.iter().filter(|name| name.starts_with(stem)).cloned().collect()
    };
    // An optional node that does not exist on the host would fail the whole container.
    let present = |names: Vec<String>| -> Vec<String> {
        let exists = |name: &String| {
            let path = format!("/dev/infiniband/{name}");
            !host.shows_nodes_at(&path) || host.node(&path).is_some()
        };
        names.into_iter().filter(exists).collect()
    };
    let devices = list("infiniband")?;
    let p_key = devices.first().filter(|_| with_p_key).and_then(|device| {
        let text = function.read(&format!("infiniband/{device}/ports/1/pkeys/0")).ok()?;
        u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    });
    let mad = list("infiniband_mad")?;
    Ok(Some(Rdma {
        devices,
        uverbs: named(&list("infiniband_verbs")?, "uverbs"),
        umad: present(named(&mad, "umad")),
        issm: present(named(&mad, "issm")),
        p_key,
    }))
}
