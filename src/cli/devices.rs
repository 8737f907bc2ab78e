//! `pcidp devices`.

use std::io::Write;

use serde::Serialize;

use super::args::{DevicesArguments, OutputFormat};
use super::{ConfigFile, Outcome, host, table};
use crate::model::{Device, Function, Inventory, Rdma, device_name, vendor_name};
use crate::pool::{Pools, Warning, warnings};

pub(super) fn devices(arguments: &DevicesArguments, out: &mut dyn Write) -> Outcome {
    let config = match &arguments.config_file {
        Some(path) => Some(ConfigFile::read(path, &arguments.resource_prefix)?.usable()?),
        None => None,
    };
    let (inventory, pools) = host::look(&host::open(&arguments.host.host_root)?, config.as_ref());
    match arguments.format.output {
        OutputFormat::Json => {
            let report = Report::new(&inventory, &pools, config.is_some());
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        }
        OutputFormat::Table => print(&inventory, &pools, config.is_some(), out)?,
    }
    Ok(())
}

pub(super) fn print(
    inventory: &Inventory,
    pools: &Pools,
    with_pools: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut header = vec!["ADDRESS", "KIND", "PF", "DRIVER", "NUMA", "GROUP", "NETDEV/NODE"];
    header.push(if with_pools { "POOL" } else { "NAME" });
    let dash = || "-".to_owned();
    let row = |device: &Device| {
        let pf = device.pf().map(|pf| pf.names.first().cloned().unwrap_or_else(|| pf.address.to_string()));
        let number = |number: Option<u32>| number.map_or_else(dash, |number| number.to_string());
        let mut row = vec![
            device.id.to_string(),
            kind(device),
            pf.unwrap_or_else(dash),
            device.driver.clone().unwrap_or_else(dash),
            number(device.numa_node),
            number(device.iommu_group),
            handle(device).unwrap_or_else(dash),
        ];
        row.push(match with_pools {
            true => pool_of(device, pools).unwrap_or_else(dash),
            false => format!("{}:{} {}", device.vendor, device.device, names(device).1),
        });
        row
    };
    let rows: Vec<Vec<String>> = inventory.devices().iter().map(|device| row(device)).collect();
    match rows.is_empty() {
        true => writeln!(out, "no network controllers and no accelerators here")?,
        false => table::write(out, &header, &rows)?,
    }
    for device in inventory.devices() {
        if let Some(route) = &device.default_route {
            writeln!(
                out,
                "{}",
                table::wrap(&format!("note: {} carries `{route}`; it is never offered", device.id), 6)
            )?;
        }
    }
    write_warnings(&of_host(inventory), out)?;
    for note in inventory.notes() {
        writeln!(out, "{}", table::wrap(&format!("note: {note}"), 6))?;
    }
    Ok(())
}

/// The warnings about all devices of a host, in whatever pool they are.
pub(super) fn of_host(inventory: &Inventory) -> Vec<Warning> {
    warnings(inventory.devices().iter().map(AsRef::as_ref))
}

pub(super) fn write_warnings(warnings: &[Warning], out: &mut dyn Write) -> std::io::Result<()> {
    warnings
        .iter()
        .try_for_each(|warning| writeln!(out, "{}", table::wrap(&format!("warning: {warning}"), 9)))
}

/// `VF 3`, `PF 8` (with so many VFs), or `PF`.
pub(super) fn kind(device: &Device) -> String {
    match &device.function {
        Function::Physical { vfs: 0 } => "PF".to_owned(),
        Function::Physical { vfs } => format!("PF +{vfs}"),
        Function::Virtual { index: Some(index), .. } => format!("VF {index}"),
        Function::Virtual { index: None, .. } | Function::Orphan => "VF".to_owned(),
        Function::Sub { index: Some(index), .. } => format!("SF {index}"),
        Function::Sub { index: None, .. } => "SF".to_owned(),
    }
}

/// The netdev, or else the node, through which the device is reached.
fn handle(device: &Device) -> Option<String> {
    let netdevs: Vec<&str> = device.netdev_names().collect();
    if !netdevs.is_empty() {
        return Some(netdevs.join(","));
    }
    // The host's one connection manager tells nothing of a device.
    let nodes = device.required_nodes();
    nodes
        .into_iter()
        .find(|path| path != Rdma::CONNECTION_MANAGER)
        .map(|path| path.trim_start_matches("/dev/").to_owned())
}

pub(super) fn pool_of(device: &Device, pools: &Pools) -> Option<String> {
    let pool = pools.pools.iter().find(|pool| pool.of_device(device.id.as_str()).is_some())?;
    Some(pool.config.resource.to_string())
}

/// Names of vendor and device in the PCI id list.
pub(super) fn names(device: &Device) -> (&'static str, &'static str) {
    let name = device_name(device.vendor, device.device);
    (vendor_name(device.vendor).unwrap_or_default(), name.unwrap_or_default())
}

#[derive(Serialize)]
struct Report {
    devices: Vec<DeviceReport>,
    warnings: Vec<String>,
    notes: Vec<NoteReport>,
}

#[derive(Serialize)]
struct NoteReport {
    path: String,
    cause: String,
}

/// One device, as `-o json` prints it. A member that does not apply is `null` or empty.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceReport {
    id: String,
    function_type: &'static str,
    vendor: String,
    device: String,
    class: String,
    vendor_name: &'static str,
    device_name: &'static str,
    driver: Option<String>,
    pf_address: Option<String>,
    pf_names: Vec<String>,
    vf_index: Option<u32>,
    vfs: Option<usize>,
    numa_node: Option<u32>,
    iommu_group: Option<u32>,
    acpi_index: Option<u32>,
    link_type: Option<crate::model::LinkType>,
    netdevs: Vec<String>,
    rdma_devices: Vec<String>,
    nodes: Vec<String>,
    absent_nodes: Vec<String>,
    default_route: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Option<String>>,
}

impl DeviceReport {
    pub(super) fn new(device: &Device, pool: Option<Option<String>>) -> Self {
        let (vendor_name, device_name) = names(device);
        let (function_type, vfs) = match device.function {
            Function::Physical { vfs } => ("pf", Some(vfs)),
            Function::Virtual { .. } | Function::Orphan => ("vf", None),
            Function::Sub { .. } => ("sf", None),
        };
        Self {
            id: device.id.to_string(),
            function_type,
            vendor: device.vendor.to_string(),
            device: device.device.to_string(),
            class: device.class.to_string(),
            vendor_name,
            device_name,
            driver: device.driver.clone(),
            pf_address: device.pf().map(|pf| pf.address.to_string()),
            pf_names: device.pf().map(|pf| pf.names.clone()).unwrap_or_default(),
            vf_index: device.index(),
            vfs,
            numa_node: device.numa_node,
            iommu_group: device.iommu_group,
            acpi_index: device.acpi_index,
            link_type: device.link_type(),
            netdevs: device.netdev_names().map(str::to_owned).collect(),
            rdma_devices: device.rdma.as_ref().map(|rdma| rdma.devices.clone()).unwrap_or_default(),
            nodes: device.required_nodes(),
            absent_nodes: device.absent_nodes.clone(),
            default_route: device.default_route.as_ref().map(ToString::to_string),
            pool,
        }
    }
}

impl Report {
    fn new(inventory: &Inventory, pools: &Pools, with_pools: bool) -> Self {
        let report = |device: &Device| DeviceReport::new(device, with_pools.then(|| pool_of(device, pools)));
        let note =
            |note: &crate::model::Note| NoteReport { path: note.path.clone(), cause: note.cause.clone() };
        Self {
            devices: inventory.devices().iter().map(|device| report(device)).collect(),
            warnings: of_host(inventory).iter().map(ToString::to_string).collect(),
            notes: inventory.notes().iter().map(note).collect(),
        }
    }
}
