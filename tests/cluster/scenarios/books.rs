//! The kubelet's own books, for those who read them: Multus, DANM, monitors.

use std::collections::BTreeSet;
use std::future::Future;

use pcidp::kubelet::api::podresources::pod_resources_lister_client::PodResourcesListerClient;
use pcidp::kubelet::api::podresources::{
    AllocatableResourcesRequest, ContainerDevices, GetPodResourcesRequest, ListPodResourcesRequest,
};
use pcidp::kubelet::{Connection, by_resource, holdings_from_checkpoint};

use crate::node::Node;
use crate::outcome::{Failure, Outcome, harness, must, same};
use crate::{plugin, pods};

const RESOURCE: &str = "intel.com/vf_vfio";

pub(crate) fn podresources_and_the_checkpoint_name_our_ids(node: &Node) -> Outcome {
    plugin::serve_eight_vfs(node)?;
    pods::run(node, &pods::pod("holder", &[(RESOURCE, 2)]))?;
    let given: BTreeSet<String> =
        pods::devices(node, "holder", "PCIDEVICE_INTEL_COM_VF_VFIO")?.into_iter().collect();

    let listed = ask(node, async |mut client| client.list(ListPodResourcesRequest {}).await)?.pod_resources;
    let pod = listed.iter().find(|pod| pod.name == "holder");
    let devices = pod.into_iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.devices);
    same("List", ids(devices), given.clone())?;

    let request = || GetPodResourcesRequest { pod_name: "holder".into(), pod_namespace: "default".into() };
    let got = ask(node, async |mut client| client.get(request()).await)?.pod_resources;
    let devices = got.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.devices);
    same("Get", ids(devices), given.clone())?;

    same(
        "GetAllocatableResources",
        allocatable(node, RESOURCE)?,
        (0..4).map(|vf| format!("0000:11:01.{}", vf * 2)).collect::<BTreeSet<_>>(),
    )?;

    let holdings = holdings_from_checkpoint(&node.at("/var/lib/kubelet/device-plugins"));
    let checkpoint = by_resource(&holdings.map_err(|error| Failure::Product(error.to_string()))?);
    let uid = node.get("pod holder", ".metadata.uid")?;
    let held = checkpoint.get(RESOURCE).into_iter().flatten().filter(|(_, holder)| holder.pod == uid);
    same("the checkpoint", held.map(|(id, _)| id.clone()).collect::<BTreeSet<_>>(), given)?;
    must(!checkpoint.contains_key("intel.com/vf_net"), "nobody holds a device of the other pool")
}

/// The ids of a resource that the kubelet could give, from the kubelet that runs at this moment.
pub(crate) fn allocatable(node: &Node, resource: &str) -> Outcome<BTreeSet<String>> {
    let answer =
        ask(node, async |mut client| client.get_allocatable_resources(AllocatableResourcesRequest {}).await)?;
    Ok(ids(answer.devices.iter().filter(|devices| devices.resource_name == resource)))
}

fn ids<'a>(devices: impl Iterator<Item = &'a ContainerDevices>) -> BTreeSet<String> {
    devices.flat_map(|devices| devices.device_ids.clone()).collect()
}

fn ask<A, F: Future<Output = Result<tonic::Response<A>, tonic::Status>>>(
    node: &Node,
    question: impl FnOnce(PodResourcesListerClient<Connection>) -> F,
) -> Outcome<A> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(harness("no runtime"))?.block_on(async {
        let socket = node.at("/var/lib/kubelet/pod-resources/kubelet.sock");
        let connection = Connection::open(&socket).await;
        let connection = connection.map_err(|error| Failure::Harness(error.to_string()))?;
        let answer = question(PodResourcesListerClient::new(connection)).await;
        Ok(answer.map_err(|status| Failure::Product(status.to_string()))?.into_inner())
    })
}
