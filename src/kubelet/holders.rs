//! Who holds which device: from podresources, or from the device manager's checkpoint.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost::Message as _;
use serde::Deserialize;
use tonic::Code;

use super::api::deviceplugin::ContainerAllocateResponse;
use super::api::podresources::ListPodResourcesRequest;
use super::api::podresources::pod_resources_lister_client::PodResourcesListerClient;
use super::connection::{ConnectError, Connection};

/// File name of the checkpoint, in the device-plugins directory
/// (<https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/types.go>).
pub const CHECKPOINT: &str = "kubelet_internal_checkpoint";

/// A container that holds devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The pod: `namespace/name` from podresources, its UID from a checkpoint.
    pub pod: String,
    /// Name of the container.
    pub container: String,
}

/// Who holds which device: `prefix/name`, then device id.
pub type Holders = BTreeMap<String, BTreeMap<String, Holder>>;

/// Why it is not known who holds what. A device that is not known to be free counts as held.
#[derive(Debug, thiserror::Error)]
pub enum HoldersError {
    /// The kubelet's podresources socket cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The kubelet does not answer.
    #[error("{} did not answer within {limit:?}", socket.display())]
    TimedOut {
        /// The socket.
        socket: PathBuf,
        /// How long it was waited.
        limit: Duration,
    },
    /// The kubelet says no.
    #[error("{} said {code:?}: {message}", socket.display())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// The gRPC code.
        code: Code,
        /// The kubelet's own words.
        message: String,
    },
    /// The checkpoint cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The checkpoint has another form than is known here.
    #[error("{} is not a checkpoint of the device manager: {source}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// Asks the kubelet at its podresources socket.
///
/// # Errors
/// When it cannot be asked, or does not answer within `limit`.
pub async fn holders_from_podresources(socket: &Path, limit: Duration) -> Result<Holders, HoldersError> {
    let talk = async {
        let connection = Connection::open(socket).await?;
        let mut client =
            PodResourcesListerClient::new(connection).max_decoding_message_size(MOST_PODRESOURCES);
        let answer = client.list(ListPodResourcesRequest {}).await;
        answer.map_err(|status| HoldersError::Refused {
            socket: socket.to_owned(),
            code: status.code(),
            message: status.message().to_owned(),
        })
    };
    let answer = tokio::time::timeout(limit, talk).await;
    let answer = answer.map_err(|_| HoldersError::TimedOut { socket: socket.to_owned(), limit })??;
    let mut holders = Holders::new();
    for pod in answer.into_inner().pod_resources {
        for container in pod.containers {
            let holder = Holder { pod: format!("{}/{}", pod.namespace, pod.name), container: container.name };
            for devices in container.devices {
                let resource = holders.entry(devices.resource_name).or_default();
                resource.extend(devices.device_ids.into_iter().map(|id| (id, holder.clone())));
            }
        }
    }
    Ok(holders)
}

/// The kubelet's own tests allow this much
/// (<https://github.com/kubernetes/kubernetes/blob/v1.34.4/test/e2e_node/util.go>); the default is 4 MiB.
const MOST_PODRESOURCES: usize = 16 * 1024 * 1024;

/// The checkpoint as the kubelet writes it, since 1.20
/// (<https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go>).
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Checkpoint {
    data: CheckpointData,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CheckpointData {
    pod_device_entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    /// By NUMA node, as text; -1 where there is none.
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<BTreeMap<String, Option<Vec<String>>>>,
    /// The plugin's answer, as protobuf in base64.
    alloc_resp: Option<String>,
}

/// Devices of one resource that one container holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The container.
    pub holder: Holder,
    /// `prefix/name`.
    pub resource: String,
    /// The devices' ids.
    pub ids: Vec<String>,
    /// Full names of the CDI devices that it was given, sorted. The kubelet gives them again whenever it starts the
    /// container.
    pub cdi_devices: Vec<String>,
    /// Paths on the host of the nodes that it was given.
    pub nodes: Vec<String>,
}

/// Reads the checkpoint of the kubelet's device manager. No file means that nothing is held.
///
/// It may name pods that have ended: the kubelet forgets them only when it next allocates.
///
/// # Errors
/// When the file cannot be read, or has another form.
pub fn holdings_from_checkpoint(device_plugins: &Path) -> Result<Vec<Holding>, HoldersError> {
    let path = device_plugins.join(CHECKPOINT);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(HoldersError::Read { path, source }),
        Ok(text) => text,
    };
    let checkpoint: Checkpoint =
        serde_json::from_slice(&text).map_err(|source| HoldersError::Form { path, source })?;
    let holding = |entry: Entry| {
        let answer = entry.alloc_resp.as_deref().map(answer).unwrap_or_default();
        Holding {
            holder: Holder { pod: entry.pod_uid, container: entry.container_name },
            resource: entry.resource_name,
            ids: entry.device_ids.unwrap_or_default().into_values().flatten().flatten().collect(),
            cdi_devices: cdi_devices(&answer),
            nodes: answer.devices.into_iter().map(|node| node.host_path).collect(),
        }
    };
    Ok(checkpoint.data.pod_device_entries.unwrap_or_default().into_iter().map(holding).collect())
}

/// What the plugin once answered, as the kubelet keeps it.
fn answer(text: &str) -> ContainerAllocateResponse {
    let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
    ContainerAllocateResponse::decode(bytes.as_slice()).unwrap_or_default()
}

/// The CDI devices in an answer: those of its field, and those of its annotations.
fn cdi_devices(answer: &ContainerAllocateResponse) -> Vec<String> {
    /// <https://github.com/cncf-tags/container-device-interface/blob/main/pkg/cdi/annotations.go>
    const ANNOTATION: &str = "cdi.k8s.io/";
    let annotated = answer.annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION));
    let mut names: Vec<String> =
        annotated.flat_map(|(_, value)| value.split(',')).map(|name| name.trim().to_owned()).collect();
    names.extend(answer.cdi_devices.iter().map(|device| device.name.clone()));
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

/// The same, by resource and device.
pub fn by_resource(holdings: &[Holding]) -> Holders {
    let mut holders = Holders::new();
    for holding in holdings {
        let resource = holders.entry(holding.resource.clone()).or_default();
        resource.extend(holding.ids.iter().map(|id| (id.clone(), holding.holder.clone())));
    }
    holders
}

/// Who told who holds what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Teller {
    /// podresources: pods that run.
    Podresources,
    /// The checkpoint: pods that have ended are in it, too, until the kubelet next allocates.
    Checkpoint,
}

/// From podresources where its socket is there and answers within `limit`, else from the checkpoint. podresources knows
/// best, for it leaves out pods that have ended; the checkpoint is always there.
///
/// # Errors
/// As [`holdings_from_checkpoint`].
pub async fn holders(
    podresources: Option<&Path>,
    device_plugins: &Path,
    limit: Duration,
) -> Result<(Holders, Teller), HoldersError> {
    let asked = match podresources {
        Some(socket) if socket.exists() => holders_from_podresources(socket, limit).await.ok(),
        _ => None,
    };
    match asked {
        Some(holders) => Ok((holders, Teller::Podresources)),
        None => Ok((by_resource(&holdings_from_checkpoint(device_plugins)?), Teller::Checkpoint)),
    }
}
