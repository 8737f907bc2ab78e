//! Userspace I/O: VFIO and UIO.

use std::io;

use super::HostRoot;
use crate::model::Vfio;

/// The VFIO handle of a function.
///
/// Facts decide, not the name of the driver: a variant driver (`mlx5_vfio_pci`, `hisi_acc_vfio_pci`) is as good as
/// `vfio-pci`. Since Linux 6.2 a VFIO device has a `vfio-dev` directory; before that only the name tells, and all
/// variant drivers have `vfio` in theirs.
pub(super) fn vfio(
    host: &HostRoot,
    directory: &str,
    entries: &[String],
    driver: Option<&str>,
) -> io::Result<Option<Vfio>> {
    let has = |name: &str| entries.iter().any(|entry| entry == name);
    let by_name = driver.is_some_and(|driver| driver.contains("vfio"));
    if driver.is_none() || !has("iommu_group") || !(has("vfio-dev") || by_name) {
        return Ok(None);
    }
    let Some(group) = iommu_group(host, directory)? else {
        return Ok(None);
    };
    let name = host.read(&format!("/sys/kernel/iommu_groups/{group}/name"));
    Ok(Some(Vfio { group, no_iommu: name.is_ok_and(|name| name == "vfio-noiommu") }))
}

/// The IOMMU group of a function; the number changes with every boot and, without an IOMMU, with every bind.
pub(super) fn iommu_group(host: &HostRoot, directory: &str) -> io::Result<Option<u32>> {
    Ok(host.link_name(&format!("{directory}/iommu_group"))?.parse().ok())
}

/// The number of `/dev/uio<n>`.
pub(super) fn uio(host: &HostRoot, directory: &str, entries: &[String]) -> io::Result<Option<u32>> {
    if !entries.iter().any(|entry| entry == "uio") {
        return Ok(None);
    }
    let names = host.list(&format!("{directory}/uio"))?;
    Ok(names.iter().find_map(|name| name.strip_prefix("uio")?.parse().ok()))
}
