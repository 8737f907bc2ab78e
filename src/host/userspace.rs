//! Userspace I/O: VFIO and UIO.

use std::io;

use super::HostRoot;
use super::directory::Directory;
use super::scan::PCI_DEVICES;
use crate::model::Vfio;

/// Where the kernel lists IOMMU groups.
const GROUPS: &str = "/sys/kernel/iommu_groups";

/// The VFIO handle of a function.
///
/// Facts decide, not the name of the driver: a variant driver (`mlx5_vfio_pci`, `hisi_acc_vfio_pci`) is as good as
/// `vfio-pci`. Since Linux 6.2 a VFIO device has a `vfio-dev` directory; before that only the name tells, and all
/// variant drivers have `vfio` in theirs.
pub(super) fn vfio(
    function: &Directory<'_>,
    driver: Option<&str>,
    with_cdev: bool,
) -> io::Result<Option<Vfio>> {
    let host = function.host();
    let by_name = driver.is_some_and(|driver| driver.contains("vfio"));
    if driver.is_none() || !function.has("iommu_group") || !(function.has("vfio-dev") || by_name) {
        return Ok(None);
    }
    let Some(group) = iommu_group(function)? else { return Ok(None) };
    let name = host.read(&format!("{GROUPS}/{group}/name"));
    let cdev = match with_cdev && function.has("vfio-dev") {
        true => cdev(function)?,
        false => None,
    };
    let no_iommu = name.is_ok_and(|name| name == "vfio-noiommu");
    Ok(Some(Vfio { group, no_iommu, blocked_by: blocked_by(host, group), cdev }))
}

/// The number of the character device. The directory exists without one, too: a kernel without
/// `CONFIG_VFIO_DEVICE_CDEV` leaves out its `dev`.
fn cdev(function: &Directory<'_>) -> io::Result<Option<u32>> {
    let names = function.list("vfio-dev")?;
    let number = names.iter().find_map(|name| Some((name, name.strip_prefix("vfio")?.parse().ok()?)));
    Ok(number.filter(|(name, _)| function.read(&format!("vfio-dev/{name}/dev")).is_ok()).map(|(_, n)| n))
}

/// The member because of which a group is not viable, by the kernel's own rule: every member is on a VFIO driver, on a
/// stub, on the driver of bridges, or on none (`driver_managed_dma` in
/// <https://github.com/torvalds/linux/blob/master/drivers/iommu/iommu.c>).
fn blocked_by(host: &HostRoot, group: u32) -> Option<String> {
    let members = host.list(&format!("{GROUPS}/{group}/devices")).ok()?;
    // Alone in its group, as VFs are where the hardware isolates them, a device blocks nobody.
    if members.len() < 2 {
        return None;
    }
    members.iter().find_map(|member| {
        let driver = host.link_name(&format!("{PCI_DEVICES}/{member}/driver")).ok()?;
        let harmless =
            driver.contains("vfio") || matches!(driver.as_str(), "pci-stub" | "pci-pf-stub" | "pcieport");
        (!harmless).then(|| format!("{member} ({driver})"))
    })
}

/// The IOMMU group of a function; the number changes with every boot and, without an IOMMU, with every bind.
pub(super) fn iommu_group(function: &Directory<'_>) -> io::Result<Option<u32>> {
    Ok(function.link_name("iommu_group")?.parse().ok())
}

/// The number of `/dev/uio<n>`.
pub(super) fn uio(function: &Directory<'_>) -> io::Result<Option<u32>> {
    if !function.has("uio") {
        return Ok(None);
    }
    let names = function.list("uio")?;
    Ok(names.iter().find_map(|name| name.strip_prefix("uio")?.parse().ok()))
}
