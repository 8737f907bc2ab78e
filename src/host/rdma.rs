//! RDMA devices below a PCI function.

use std::io;

use super::HostRoot;
use crate::model::Rdma;

/// The RDMA devices of a function with their character devices; `None` where it has none.
///
/// An RDMA device and its character devices hang below the PCI function, each in a directory named like its class.
pub(super) fn read(host: &HostRoot, directory: &str, entries: &[String]) -> io::Result<Option<Rdma>> {
    let list = |class: &str| match entries.iter().any(|entry| entry == class) {
        true => host.list(&format!("{directory}/{class}")),
        false => Ok(Vec::new()),
    };
    let devices = list("infiniband")?;
    if devices.is_empty() {
        return Ok(None);
    }
    let named = |names: &[String], stem: &str| -> Vec<String> {
        names.iter().filter(|name| name.starts_with(stem)).cloned().collect()
    };
    let verbs = list("infiniband_verbs")?;
    let mad = list("infiniband_mad")?;
    Ok(Some(Rdma {
        devices,
        uverbs: named(&verbs, "uverbs"),
        umad: named(&mad, "umad"),
        issm: named(&mad, "issm"),
    }))
}
