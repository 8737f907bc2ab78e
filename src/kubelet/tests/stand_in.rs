//! The stand-in behaves as a kubelet does.

use tonic::Code;

use super::shelf::{LIMIT, RESOURCE, Served, Shelf, devices, ids, resource, within};
use crate::kubelet::stand_in::{CallError, StandIn};
use crate::kubelet::{
    Instance, OwnSocket, Place, PluginOptions, Registration, StreamEvent, Verdict, register, serve_registry,
    socket_path,
};

fn start(kubelet: &StandIn, list: &str, options: PluginOptions) -> Served {
    let directory = kubelet.socket().parent().unwrap();
    let path = socket_path(directory, Place::DevicePlugins, &resource(), &Instance::random()).unwrap();
    let shelf = Shelf { options, ..Shelf::default() };
    Served::start(path, shelf, list)
}

async fn announce(kubelet: &StandIn, served: &Served, options: PluginOptions) {
    let resource = resource();
    let registration = Registration { endpoint: served.socket.file_name(), resource: &resource, options };
    register(kubelet.socket(), &registration, LIMIT).await.unwrap();
}

async fn joined(kubelet: &StandIn, list: &str, options: PluginOptions) -> Served {
    let mut served = start(kubelet, list, options);
    announce(kubelet, &served, options).await;
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
    served
}

const PLAIN: PluginOptions = PluginOptions { preferred_allocation: false, pre_start: false };

#[tokio::test]
async fn it_lists_and_allocates_and_keeps_what_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let served = joined(&kubelet, "a b c!", PLAIN).await;
    let two = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 2;
    let state = kubelet.eventually("two devices", two).await.unwrap();
    assert_eq!(state.resource(RESOURCE).devices(), &*devices("a b c!"));

    let (taken, answer) = kubelet.allocate_n(RESOURCE, 1).await.unwrap();
    assert_eq!(taken, ids("a"));
    assert_eq!(answer.envs["IDS"], "a");
    let error = kubelet.allocate_n(RESOURCE, 2).await.unwrap_err();
    assert!(matches!(error, CallError::TooFew { wanted: 2, free: 1, .. }), "{error}");
    kubelet.free(RESOURCE, &taken);
    assert_eq!(kubelet.allocate_n(RESOURCE, 2).await.unwrap().0, ids("a b"));

    served.list.send_replace(devices("a b c"));
    let three = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 3;
    kubelet.eventually("three devices", three).await.unwrap();
    let error = kubelet.allocate(RESOURCE, &[ids("zz")]).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert!(kubelet.pre_start(RESOURCE, &ids("a")).await.is_ok());
}

#[tokio::test]
async fn it_asks_for_a_choice_where_the_plugin_offers_one() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let options = PluginOptions { preferred_allocation: true, pre_start: true };
    let _served = joined(&kubelet, "a b c", options).await;
    let three = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 3;
    kubelet.eventually("three devices", three).await.unwrap();
    assert_eq!(kubelet.allocate_n(RESOURCE, 2).await.unwrap().0, ids("c b"));
    let chosen = kubelet.preferred(RESOURCE, &ids("a b c"), &ids("b"), 2).await;
    assert_eq!(chosen.unwrap(), ids("b c"));
}

#[tokio::test]
async fn a_restart_removes_every_socket_and_ends_every_stream() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = StandIn::start(directory.path()).await.unwrap();
    std::fs::write(directory.path().join("kubelet_internal_checkpoint"), "{}").unwrap();
    let mut served = joined(&kubelet, "a", PLAIN).await;
    kubelet.restart().await.unwrap();
    assert_eq!(served.event().await, StreamEvent::Closed { open: 0 });
    assert!(!served.socket.is_in_place());
    assert!(directory.path().join("kubelet_internal_checkpoint").exists());
    assert_eq!(kubelet.state().allocatable(RESOURCE), 0);

    let again = joined(&kubelet, "a", PLAIN).await;
    let one = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 1;
    let state = kubelet.eventually("the device again", one).await.unwrap();
    assert_eq!(state.resource(RESOURCE).registrations.len(), 2);
    drop(again);
}

#[tokio::test]
async fn a_stopped_one_answers_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = StandIn::start(directory.path()).await.unwrap();
    kubelet.stop().await;
    assert!(kubelet.socket().exists());
    assert!(std::os::unix::net::UnixStream::connect(kubelet.socket()).is_err());
}

#[tokio::test]
async fn when_the_older_stream_ends_the_newer_connection_is_closed_too() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let older = joined(&kubelet, "a b", PLAIN).await;
    let mut newer = joined(&kubelet, "a b", PLAIN).await;
    older.stop.send(()).unwrap();
    assert_eq!(newer.event().await, StreamEvent::Closed { open: 0 });
    let none = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 0;
    kubelet.eventually("no device", none).await.unwrap();
    announce(&kubelet, &newer, PLAIN).await;
    let two = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 2;
    kubelet.eventually("two devices again", two).await.unwrap();
}

#[tokio::test]
async fn when_the_newer_one_ends_the_older_stream_stays_open_and_counts_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let mut older = joined(&kubelet, "a b", PLAIN).await;
    let newer = joined(&kubelet, "a b", PLAIN).await;
    newer.stop.send(()).unwrap();
    let none = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 0;
    kubelet.eventually("no device", none).await.unwrap();
    assert!(older.events.try_recv().is_err());
    let error = kubelet.allocate_n(RESOURCE, 0).await.unwrap_err();
    assert!(matches!(error, CallError::NotConnected { .. }), "{error}");
}

#[tokio::test]
async fn a_dropped_stream_is_seen_by_the_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let mut served = joined(&kubelet, "a", PLAIN).await;
    kubelet.drop_stream(RESOURCE);
    assert_eq!(served.event().await, StreamEvent::Closed { open: 0 });
    assert!(!kubelet.state().resource(RESOURCE).connected);
}

#[tokio::test]
async fn it_can_accept_and_never_open_a_stream() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    kubelet.ignore_streams(true);
    let mut served = start(&kubelet, "a", PLAIN);
    announce(&kubelet, &served, PLAIN).await;
    assert!(served.events.try_recv().is_err());
    kubelet.ignore_streams(false);
    announce(&kubelet, &served, PLAIN).await;
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
}

#[tokio::test]
async fn it_finds_a_pool_through_its_registry_socket() {
    let directory = tempfile::tempdir().unwrap();
    let registry = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let served = start(&kubelet, "a b", PLAIN);
    let path = socket_path(registry.path(), Place::PluginsRegistry, &resource(), &Instance::random());
    let path = path.unwrap();
    let (_own, listener) = OwnSocket::bind(&path).unwrap();
    let (verdicts, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let endpoint = served.path.clone();
    tokio::spawn(async move {
        serve_registry(listener, &resource(), &endpoint, verdicts, std::future::pending()).await;
    });
    kubelet.discover(&path).await.unwrap();
    assert_eq!(within(heard.recv()).await, Some(Verdict::Registered));
    let two = |state: &crate::kubelet::stand_in::State| state.allocatable(RESOURCE) == 2;
    kubelet.eventually("two devices", two).await.unwrap();

    kubelet.refuse(Some("not today"));
    assert!(kubelet.discover(&path).await.is_err());
    let reason = "not today".to_owned();
    assert_eq!(within(heard.recv()).await, Some(Verdict::Refused { reason }));
}
