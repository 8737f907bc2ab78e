//! Who holds what.

use tonic::{Request, Response, Status};

use super::shelf::{LIMIT, RESOURCE, ids};
use crate::kubelet::api::podresources as api;
use crate::kubelet::api::podresources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use crate::kubelet::{
    CHECKPOINT, HoldersError, OwnSocket, by_resource, holders_from_podresources, holdings_from_checkpoint,
};

/// Has one pod, or forbids to ask.
#[derive(Clone, Copy)]
struct Lister {
    forbidden: bool,
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<api::ListPodResourcesRequest>,
    ) -> Result<Response<api::ListPodResourcesResponse>, Status> {
        if self.forbidden {
            return Err(Status::resource_exhausted("too many requests"));
        }
        let container = |name: &str, held: &str| api::ContainerResources {
            name: name.to_owned(),
            devices: vec![api::ContainerDevices {
                resource_name: RESOURCE.to_owned(),
                device_ids: ids(held),
                topology: None,
            }],
            ..api::ContainerResources::default()
        };
        let pod = api::PodResources {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            containers: vec![container("one", "a b"), container("two", "c")],
        };
        let pod_resources = vec![pod];
        Ok(Response::new(api::ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<api::AllocatableResourcesRequest>,
    ) -> Result<Response<api::AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get(
        &self,
        _: Request<api::GetPodResourcesRequest>,
    ) -> Result<Response<api::GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

#[tokio::test]
async fn podresources_name_the_pod_and_the_container() {
    let directory = tempfile::tempdir().unwrap();
    for forbidden in [false, true] {
        let path = directory.path().join(format!("{forbidden}.sock"));
        let (_own, listener) = OwnSocket::bind(&path).unwrap();
        let service = PodResourcesListerServer::new(Lister { forbidden });
        tokio::spawn(crate::kubelet::server::serve(listener, service, std::future::pending()));
        let answer = holders_from_podresources(&path, LIMIT).await;
        if forbidden {
            let error = answer.unwrap_err();
            assert!(error.to_string().contains("too many requests"), "{error}");
            continue;
        }
        let held = answer.unwrap().remove(RESOURCE).unwrap();
        let held: Vec<_> =
            held.iter().map(|(id, holder)| format!("{id} {} {}", holder.pod, holder.container)).collect();
        assert_eq!(held, ["a shop/web one", "b shop/web one", "c shop/web two"]);
    }
    let error = holders_from_podresources(&directory.path().join("none.sock"), LIMIT).await;
    assert!(matches!(error, Err(HoldersError::Connect(_))));
}

#[test]
fn a_checkpoint_names_the_pods_uid_and_the_container() {
    let directory = tempfile::tempdir().unwrap();
    assert!(by_resource(&holdings_from_checkpoint(directory.path()).unwrap()).is_empty());

    let path = directory.path().join(CHECKPOINT);
    let entry = r#"{"PodUID":"0f5f","ContainerName":"one","ResourceName":"example.com/probe",
        "DeviceIDs":{"-1":["b"],"0":["a"]},"AllocResp":"CgA="}"#;
    for (entries, count) in [(format!("[{entry}]"), 2), ("null".to_owned(), 0)] {
        let text = format!(
            r#"{{"Data":{{"PodDeviceEntries":{entries},"RegisteredDevices":{{"example.com/probe":["a","b","c"]}}}},"Checksum":42}}"#
        );
        std::fs::write(&path, text).unwrap();
        let all = by_resource(&holdings_from_checkpoint(directory.path()).unwrap());
        let held = all.get(RESOURCE).cloned().unwrap_or_default();
        assert_eq!(held.len(), count);
        for holder in held.values() {
            assert_eq!((holder.pod.as_str(), holder.container.as_str()), ("0f5f", "one"));
        }
    }

    std::fs::write(&path, r#"{"Data":{"PodDeviceEntries":[{"DeviceIDs":["a"]}]}}"#).unwrap();
    let error = holdings_from_checkpoint(directory.path()).unwrap_err();
    assert!(matches!(error, HoldersError::Form { .. }), "{error}");
    assert!(error.to_string().contains(CHECKPOINT), "{error}");
}
