//! The Container Device Interface: one spec a pool
//! (<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>).

use serde::Serialize;

use crate::model::{DeviceId, DeviceNode, ResourceName, stable_hash};

/// The oldest version that knows `hostPath`.
const VERSION: &str = "0.5.0";

/// How the runtime is told. Older kubelets know annotations only; runtimes drop what comes by both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CdiMode {
    /// In the field of the Allocate answer.
    pub field: bool,
    /// As annotations.
    pub annotations: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    cdi_version: &'static str,
    kind: String,
    devices: Vec<Device<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: &'a str,
    container_edits: Edits<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits<'a> {
    device_nodes: Vec<Node<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<&'a str>,
    permissions: &'static str,
}

/// The kind of a pool's devices: `<prefix>/pcidp-<name>`.
///
/// A class may have letters, digits, `-` and `_`, and begins with a letter; a vendor begins with one too. Where something
/// had to be replaced, a hash of the resource keeps the kind unique.
pub fn kind(resource: &ResourceName) -> String {
    let class: String = resource
        .name()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' })
        .collect();
    let vendor = match resource.prefix().starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => resource.prefix().to_owned(),
        false => format!("x-{}", resource.prefix()),
    };
    let kind = format!("{vendor}/pcidp-{class}");
    match kind == format!("{}/pcidp-{}", resource.prefix(), resource.name()) {
        true => kind,
        false => format!("{kind}-{:016x}", stable_hash(&resource.to_string())),
    }
}

/// The full name of a device.
pub fn device_name(resource: &ResourceName, id: &DeviceId) -> String {
    format!("{}={id}", kind(resource))
}

/// Begins the file names of specs for devices of a pool under kinds that the pool has not, but running containers name.
pub fn kept_prefix(resource: &ResourceName) -> String {
    format!("pcidp-kept-{}=", kind(resource).replace('/', "_"))
}

/// File name of the spec for such a kind.
pub fn kept_file_name(resource: &ResourceName, kind: &str) -> String {
    format!("{}{}.json", kept_prefix(resource), kind.replace('/', "_"))
}

/// File name of a pool's spec.
pub fn file_name(resource: &ResourceName) -> String {
    format!("pcidp-{}.json", kind(resource).replace('/', "_"))
}

/// The spec of a pool; nothing where no device has a node, for a spec without devices, or with one without edits, is
/// refused as a whole.
pub fn spec(resource: &ResourceName, devices: &[(DeviceId, Vec<DeviceNode>)]) -> Option<String> {
    spec_of_kind(kind(resource), devices)
}

/// The same for any kind: one that running containers were given by another plugin, or for a pool of another name.
pub fn spec_of_kind(kind: String, devices: &[(DeviceId, Vec<DeviceNode>)]) -> Option<String> {
    let devices: Vec<Device<'_>> = devices
        .iter()
        .filter(|(_, nodes)| !nodes.is_empty())
        .map(|(id, nodes)| Device {
            name: id.as_str(),
            container_edits: Edits { device_nodes: nodes.iter().map(Node::from).collect() },
        })
        .collect();
    let spec = Spec { cdi_version: VERSION, kind, devices };
    (!spec.devices.is_empty()).then(|| serde_json::json!(spec).to_string())
}

impl<'a> From<&'a DeviceNode> for Node<'a> {
    fn from(node: &'a DeviceNode) -> Self {
        Self {
            path: &node.container,
            host_path: (node.host != node.container).then_some(&node.host),
            permissions: "rw",
        }
    }
}

/// The annotation that names devices to a runtime whose kubelet knows no field. The key is unique to the resource, for
/// the kubelet merges the annotations of all pools by key.
pub fn annotation(resource: &ResourceName, names: &[String]) -> (String, String) {
    (format!("cdi.k8s.io/pcidp_{:016x}", stable_hash(&resource.to_string())), names.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resource(prefix: &str, name: &str) -> ResourceName {
        ResourceName::new(prefix, name).unwrap()
    }

    /// The rules of `parser.ValidateVendorName` and `ValidateClassName` of the CDI library.
    fn is_valid(kind: &str) -> bool {
        let (vendor, class) = kind.split_once('/').unwrap();
        let word = |word: &str, inner: &[char]| {
            word.starts_with(|c: char| c.is_ascii_alphabetic())
                && word.ends_with(|c: char| c.is_ascii_alphanumeric())
                && word.chars().all(|c| c.is_ascii_alphanumeric() || inner.contains(&c))
        };
        word(vendor, &['-', '_', '.']) && word(class, &['-', '_']) && class.len() > 1
    }

    #[test]
    fn a_kind_is_what_one_expects_and_valid_for_odd_names_too() {
        assert_eq!(kind(&resource("intel.com", "sriov_net")), "intel.com/pcidp-sriov_net");
        for name in ["10G", "r", "kae.hpre", "a.b-c"] {
            assert!(is_valid(&kind(&resource("openfuyao.com", name))), "{name}");
        }
        assert_ne!(kind(&resource("i.com", "a.b")), kind(&resource("i.com", "a-b")));
        assert!(is_valid(&kind(&resource("3com.com", "a"))));
    }

    #[test]
    fn a_pool_without_nodes_has_no_spec_and_a_device_without_nodes_is_left_out() {
        let name = resource("intel.com", "r");
        let bare = (DeviceId::from("0000:01:00.0"), Vec::new());
        assert_eq!(spec(&name, std::slice::from_ref(&bare)), None);
        let node = DeviceNode { host: "/dev/vfio/noiommu-1".to_owned(), container: "/dev/vfio/1".to_owned() };
        let full = (DeviceId::from("0000:01:00.1"), vec![DeviceNode::same("/dev/vfio/vfio"), node]);
        let text = spec(&name, &[bare, full]).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["devices"].as_array().unwrap().len(), 1);
        let nodes = &read["devices"][0]["containerEdits"]["deviceNodes"];
        assert_eq!(nodes[0], serde_json::json!({"path": "/dev/vfio/vfio", "permissions": "rw"}));
        assert_eq!(nodes[1]["hostPath"], "/dev/vfio/noiommu-1");
    }

    proptest! {
        #[test]
        fn every_resource_has_a_valid_kind_and_one_of_its_own(
            names in prop::collection::hash_set("[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,20}[a-zA-Z0-9])?", 2..20)
        ) {
            let kinds: std::collections::HashSet<String> =
                names.iter().map(|name| kind(&resource("intel.com", name))).collect();
            prop_assert_eq!(kinds.len(), names.len());
            for kind in kinds {
                prop_assert!(is_valid(&kind), "{}", kind);
            }
        }
    }
}
