//! The endpoint of a pool.

use std::io::Write;

use tokio::sync::oneshot;
use tonic::{Code, Streaming};

use super::shelf::{Served, Shelf, devices, ids, within};
use crate::kubelet::api::deviceplugin as api;
use crate::kubelet::{Advertised, PluginOptions, StreamEvent};

type Lists = Streaming<api::ListAndWatchResponse>;

fn served(list: &str) -> (Served, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    (Served::start(path, Shelf::default(), list), directory)
}

async fn listen(served: &Served) -> Lists {
    let answer = served.client().await.list_and_watch(api::Empty {}).await;
    answer.unwrap().into_inner()
}

async fn next(lists: &mut Lists) -> Vec<Advertised> {
    let list = within(lists.message()).await.unwrap().unwrap();
    list.devices.into_iter().map(Into::into).collect()
}

fn request(containers: &[&str]) -> api::AllocateRequest {
    let container_requests =
        containers.iter().map(|text| api::ContainerAllocateRequest { devices_ids: ids(text) }).collect();
    api::AllocateRequest { container_requests }
}

#[tokio::test]
async fn the_list_comes_at_once_and_after_each_change() {
    let (served, _directory) = served("a b!");
    let mut lists = listen(&served).await;
    assert_eq!(next(&mut lists).await, *devices("a b!"));
    served.list.send_replace(devices("a b"));
    assert_eq!(next(&mut lists).await, *devices("a b"));
    served.list.send_replace(devices(""));
    assert_eq!(next(&mut lists).await, *devices(""));
}

#[tokio::test]
async fn words_and_topology_are_those_of_the_kubelet() {
    let (served, _directory) = served("a b!");
    let mut lists = listen(&served).await;
    let list = within(lists.message()).await.unwrap().unwrap().devices;
    assert_eq!(list[0].health, "Healthy");
    assert_eq!(list[0].topology.as_ref().unwrap().nodes[0].id, 1);
    assert_eq!(list[1].health, "Unhealthy");
    assert_eq!(list[1].topology, None);
}

#[tokio::test]
async fn an_unchanged_list_is_not_sent_again() {
    let (served, _directory) = served("a");
    let mut lists = listen(&served).await;
    next(&mut lists).await;
    served.list.send_replace(devices("a"));
    // Lets the stream look at the equal list before the next one comes.
    let mut other = listen(&served).await;
    next(&mut other).await;
    served.list.send_replace(devices("a b"));
    assert_eq!(next(&mut lists).await, *devices("a b"));
}

#[tokio::test]
async fn every_stream_gets_every_state() {
    let (mut served, _directory) = served("a");
    let mut first = listen(&served).await;
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
    let mut second = listen(&served).await;
    assert_eq!(served.event().await, StreamEvent::Opened { open: 2 });
    for lists in [&mut first, &mut second] {
        assert_eq!(next(lists).await, *devices("a"));
    }
    served.list.send_replace(devices("a b"));
    for lists in [&mut first, &mut second] {
        assert_eq!(next(lists).await, *devices("a b"));
    }
}

#[tokio::test]
async fn a_dead_stream_does_not_swallow_an_update() {
    let (mut served, _directory) = served("a");
    let mut dead = listen(&served).await;
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
    next(&mut dead).await;
    drop(dead);
    served.list.send_replace(devices("a b"));
    let mut alive = listen(&served).await;
    assert_eq!(next(&mut alive).await, *devices("a b"));
    served.list.send_replace(devices("a b c"));
    assert_eq!(next(&mut alive).await, *devices("a b c"));
}

#[tokio::test]
async fn a_stream_that_nobody_reads_holds_nobody_up_and_skips_to_the_latest() {
    let (served, _directory) = served("a");
    let long: String = (0..5000).map(|number| format!("device-{number:050} ")).collect();
    let mut idle = listen(&served).await;
    let mut alive = listen(&served).await;
    next(&mut alive).await;
    for round in 0..20 {
        served.list.send_replace(devices(&format!("{long} round-{round}")));
        let list = next(&mut alive).await;
        assert_eq!(list.last().unwrap().id, format!("round-{round}"));
    }
    let mut lists = 1;
    while next(&mut idle).await.last().unwrap().id != "round-19" {
        lists += 1;
    }
    assert!(lists < 20, "{lists} lists were kept for a stream that nobody read");
}

#[tokio::test]
async fn a_client_that_goes_closes_its_stream() {
    let (mut served, _directory) = served("a");
    let mut client = served.client().await;
    let lists = client.list_and_watch(api::Empty {}).await.unwrap();
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
    drop(lists);
    assert_eq!(served.event().await, StreamEvent::Closed { open: 0 });
    assert!(client.get_device_plugin_options(api::Empty {}).await.is_ok());
}

#[tokio::test]
async fn a_connection_that_breaks_closes_its_streams() {
    let (mut served, _directory) = served("a");
    let connection = crate::kubelet::Connection::open(&served.path).await.unwrap();
    let mut client = api::device_plugin_client::DevicePluginClient::new(connection.clone());
    let _lists = client.list_and_watch(api::Empty {}).await.unwrap();
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
    connection.close();
    assert_eq!(served.event().await, StreamEvent::Closed { open: 0 });
}

#[tokio::test]
async fn a_list_without_a_writer_stays_as_it_is() {
    let (mut served, _directory) = served("a");
    let mut lists = listen(&served).await;
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
    served.list = tokio::sync::watch::channel(devices("")).0;
    assert_eq!(next(&mut lists).await, *devices("a"));
    served.stop.send(()).unwrap();
    assert_eq!(within(lists.message()).await.unwrap(), None);
}

#[tokio::test]
async fn several_containers_are_answered_in_order() {
    let (served, _directory) = served("a b c");
    let answer = served.client().await.allocate(request(&["c a", "", "b"])).await;
    let answers = answer.unwrap().into_inner().container_responses;
    let values: Vec<_> = answers.iter().map(|answer| answer.envs["IDS"].as_str()).collect();
    assert_eq!(values, ["c,a", "", "b"]);
    let first = &answers[0];
    let node = &first.devices[1];
    assert_eq!(
        (node.host_path.as_str(), node.container_path.as_str(), node.permissions.as_str()),
        ("/dev/a", "/dev/a", "rw")
    );
    assert!(first.mounts[0].read_only);
    assert_eq!(
        (first.mounts[0].host_path.as_str(), first.mounts[0].container_path.as_str()),
        ("/host", "/container")
    );
    assert_eq!(first.cdi_devices[0].name, "example.com/probe=c");
    assert_eq!(first.annotations["key"], "value");
}

#[tokio::test]
async fn a_refusal_has_its_code_and_names_the_device() {
    let (served, _directory) = served("a b c");
    let mut client = served.client().await;
    for (text, code, named) in [
        ("a 0000:ff:1f.7", Code::InvalidArgument, "0000:ff:1f.7"),
        ("b b", Code::InvalidArgument, "b is named more than once"),
        ("sick", Code::FailedPrecondition, "sick is unhealthy: the link is down"),
        ("bare", Code::FailedPrecondition, "/dev/vfio/7"),
        ("torn", Code::Internal, "/sys/x"),
    ] {
        let status = client.allocate(request(&["a", text])).await.unwrap_err();
        assert_eq!(status.code(), code, "{text}");
        assert!(status.message().contains(named), "{}", status.message());
        let devices_ids = ids(text);
        let status = client.pre_start_container(api::PreStartContainerRequest { devices_ids }).await;
        assert_eq!(status.unwrap_err().code(), code, "{text}");
    }
}

#[tokio::test]
async fn a_choice_is_made_for_each_container() {
    let (served, _directory) = served("a b c");
    let container = |must: &str, size| api::ContainerPreferredAllocationRequest {
        available_device_i_ds: ids("a b c"),
        must_include_device_i_ds: ids(must),
        allocation_size: size,
    };
    let mut client = served.client().await;
    let container_requests = vec![container("", 2), container("a", 2)];
    let answer =
        client.get_preferred_allocation(api::PreferredAllocationRequest { container_requests }).await;
    let answer = answer.unwrap().into_inner().container_responses;
    assert_eq!(answer[0].device_i_ds, ids("c b"));
    assert_eq!(answer[1].device_i_ds, ids("a c"));

    let container_requests = vec![container("", -1)];
    let answer =
        client.get_preferred_allocation(api::PreferredAllocationRequest { container_requests }).await;
    assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn options_are_those_of_the_pool() {
    let directory = tempfile::tempdir().unwrap();
    for (preferred_allocation, pre_start) in [(false, true), (true, false)] {
        let options = PluginOptions { preferred_allocation, pre_start };
        let shelf = Shelf { options, ..Shelf::default() };
        let served = Served::start(directory.path().join(format!("{pre_start}.sock")), shelf, "a");
        let answer = served.client().await.get_device_plugin_options(api::Empty {}).await;
        assert_eq!(PluginOptions::from(answer.unwrap().into_inner()), options);
    }
}

// The call holds the thread that it runs on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_shutdown_streams_end_and_a_call_in_flight_finishes() {
    let directory = tempfile::tempdir().unwrap();
    let (came, has_come) = oneshot::channel();
    let (go_on, gate) = std::sync::mpsc::channel();
    let shelf = Shelf { gate: Some((came, gate)).into(), ..Shelf::default() };
    let mut served = Served::start(directory.path().join("a.sock"), shelf, "a");
    let mut lists = listen(&served).await;
    next(&mut lists).await;
    assert_eq!(served.event().await, StreamEvent::Opened { open: 1 });
    let mut client = served.client().await;
    let call = tokio::spawn(async move { client.allocate(request(&["a"])).await });
    within(has_come).await.unwrap();

    let Served { stop, ended, mut events, .. } = served;
    stop.send(()).unwrap();
    assert_eq!(within(lists.message()).await.unwrap(), None);
    assert_eq!(within(events.recv()).await, Some(StreamEvent::Closed { open: 0 }));
    assert!(!ended.is_finished());
    go_on.send(()).unwrap();
    let answer = within(call).await.unwrap().unwrap().into_inner();
    assert_eq!(answer.container_responses[0].envs["IDS"], "a");
    within(ended).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_hang_up_does_not_hold_up_a_shutdown() {
    let (served, _directory) = served("a");
    let mut mute = std::os::unix::net::UnixStream::connect(&served.path).unwrap();
    mute.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    // Answered only when the mute one has been accepted.
    served.client().await.get_device_plugin_options(api::Empty {}).await.unwrap();
    served.stop.send(()).unwrap();
    within(served.ended).await.unwrap();
}
