//! Device-information files
//! (<https://github.com/k8snetworkplumbingwg/device-info-spec/blob/main/SPEC.md>).

use serde::Serialize;

use crate::config::Selector;
use crate::model::{Device, DeviceInfoFile, ResourceName, Vdpa, VdpaType};

const VERSION: &str = "1.1.0";

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum DeviceInfo<'a> {
    Pci { version: &'static str, pci: Pci<'a> },
    Vdpa { version: &'static str, vdpa: VdpaInfo<'a> },
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Pci<'a> {
    pci_address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pf_pci_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    representor_device: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct VdpaInfo<'a> {
    parent_device: &'a str,
    driver: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    pci_address: &'a str,
}

/// The file about one device.
///
/// A subfunction's address is its auxiliary name: its PCI address is that of the PF, and a CNI plugin that took it for the
/// device's would move the PF's netdev.
pub fn device_info(resource: &ResourceName, device: &Device, selector: Option<&Selector>) -> DeviceInfoFile {
    let with_rdma = selector.is_some_and(|selector| selector.is_rdma);
    let vdpa = selector.and_then(|selector| selector.vdpa_type).zip(device.vdpa.as_ref());
    let info = match vdpa {
        Some((kind, vdpa)) => DeviceInfo::Vdpa {
            version: VERSION,
            vdpa: VdpaInfo {
                parent_device: &vdpa.name,
                driver: kind.to_string(),
                path: Vdpa::node(vdpa).filter(|_| kind == VdpaType::Vhost),
                pci_address: device.id.as_str(),
            },
        },
        None => DeviceInfo::Pci {
            version: VERSION,
            pci: Pci {
                pci_address: device.id.as_str(),
                pf_pci_address: device.pf().map(|pf| pf.address.to_string()),
                rdma_device: device
                    .rdma
                    .as_ref()
                    .filter(|rdma| with_rdma && !rdma.devices.is_empty())
                    .map(|rdma| rdma.devices.join(",")),
                representor_device: device.representor.as_deref(),
            },
        },
    };
    DeviceInfoFile {
        device: device.id.clone(),
        name: file_name(resource, device),
        content: serde_json::json!(info).to_string(),
    }
}

fn file_name(resource: &ResourceName, device: &Device) -> String {
    format!("{resource}-{}-device.json", device.id).replace('/', "-")
}
