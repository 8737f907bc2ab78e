//! Device-information files
//! (<https://github.com/k8snetworkplumbingwg/device-info-spec/blob/main/SPEC.md>).

use serde::Serialize;

use crate::config::Selector;
use crate::model::{Device, DeviceInfoFile, ResourceName};

#[derive(Serialize)]
struct DeviceInfo<'a> {
    r#type: &'static str,
    version: &'static str,
    pci: Pci<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Pci<'a> {
    pci_address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pf_pci_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_device: Option<String>,
}

/// The file about one device.
pub fn device_info(resource: &ResourceName, device: &Device, selector: Option<&Selector>) -> DeviceInfoFile {
    let with_rdma = selector.is_some_and(|selector| selector.is_rdma);
    let info = DeviceInfo {
        r#type: "pci",
        version: "1.1.0",
        pci: Pci {
            pci_address: device.id.as_str(),
            pf_pci_address: device.pf().map(|pf| pf.address.to_string()),
            rdma_device: device.rdma.as_ref().filter(|_| with_rdma).map(|rdma| rdma.devices.join(",")),
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
