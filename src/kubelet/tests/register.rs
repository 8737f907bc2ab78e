//! Registration.

use std::time::Duration;

use tonic::Code;

use super::shelf::{LIMIT, RESOURCE, Served, Shelf, resource};
use crate::kubelet::stand_in::StandIn;
use crate::kubelet::{PluginOptions, RegisterError, Registration, SocketIdentity, register};

const OPTIONS: PluginOptions = PluginOptions { preferred_allocation: true, pre_start: false };

fn shelf() -> Shelf {
    Shelf { options: OPTIONS, ..Shelf::default() }
}

#[tokio::test]
async fn a_served_pool_registers_and_its_options_agree() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let served = Served::start(directory.path().join("a.sock"), shelf(), "a");
    let resource = resource();
    let registration =
        Registration { endpoint: served.socket.file_name(), resource: &resource, options: OPTIONS };
    let identity = register(kubelet.socket(), &registration, LIMIT).await.unwrap();
    assert_eq!(identity, SocketIdentity::of(kubelet.socket()));

    let seen = kubelet.state().resource(RESOURCE);
    let request = &seen.registrations[0].request;
    assert_eq!(request.version, "v1beta1");
    assert_eq!(request.endpoint, "a.sock");
    assert_eq!(request.options.map(PluginOptions::from), Some(OPTIONS));
    assert_eq!(seen.options, OPTIONS);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_kubelets_words() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    kubelet.refuse(Some("the ResourceName is invalid"));
    let resource = resource();
    let registration = Registration { endpoint: "a.sock", resource: &resource, options: OPTIONS };
    let error = register(kubelet.socket(), &registration, LIMIT).await.unwrap_err();
    assert!(matches!(&error, RegisterError::Refused { code: Code::Unknown, .. }), "{error}");
    let text = error.to_string();
    for part in [RESOURCE, "the ResourceName is invalid", kubelet.socket().to_str().unwrap()] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_kubelet_that_is_not_there_is_named_by_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kubelet.sock");
    let resource = resource();
    let registration = Registration { endpoint: "a.sock", resource: &resource, options: OPTIONS };
    let error = register(&socket, &registration, LIMIT).await.unwrap_err();
    assert!(matches!(&error, RegisterError::Connect { .. }), "{error}");
    assert!(error.to_string().contains(socket.to_str().unwrap()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_does_not_answer_is_not_awaited_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kubelet.sock");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let resource = resource();
    let registration = Registration { endpoint: "a.sock", resource: &resource, options: OPTIONS };
    let limit = Duration::from_secs(10);
    let error = register(&socket, &registration, limit).await.unwrap_err();
    assert!(matches!(&error, RegisterError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("10s"), "{error}");
}
