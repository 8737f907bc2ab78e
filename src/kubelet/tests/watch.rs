//! Watching a directory of sockets.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::shelf::within;
use crate::kubelet::stand_in::StandIn;
use crate::kubelet::{KUBELET_SOCKET, OwnSocket, SocketIdentity, SocketWatch};

#[tokio::test]
async fn a_kubelet_that_restarts_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = StandIn::start(directory.path()).await.unwrap();
    let before = SocketIdentity::of(kubelet.socket());
    let mut watch = SocketWatch::new(directory.path());
    assert!(!watch.is_polling());
    assert_eq!(watch.sockets().get(KUBELET_SOCKET), before);
    kubelet.restart().await.unwrap();
    let after = within(watch.changed()).await.get(KUBELET_SOCKET);
    assert_ne!(after, before);
}

#[tokio::test]
async fn a_change_before_the_watch_is_seen_by_comparison() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = StandIn::start(directory.path()).await.unwrap();
    let registered_with = SocketIdentity::of(kubelet.socket());
    kubelet.restart().await.unwrap();
    let watch = SocketWatch::new(directory.path());
    assert_ne!(watch.sockets().get(KUBELET_SOCKET), registered_with);
}

#[tokio::test]
async fn own_and_sibling_sockets_that_go_are_seen() {
    let directory = tempfile::tempdir().unwrap();
    let (own, _listener) = OwnSocket::bind(&directory.path().join("own.sock")).unwrap();
    let (sibling, _other) = OwnSocket::bind(&directory.path().join("sibling.sock")).unwrap();
    let mut watch = SocketWatch::new(directory.path());
    assert_eq!(watch.sockets().names().collect::<Vec<_>>(), ["own.sock", "sibling.sock"]);
    std::fs::remove_file(own.path()).unwrap();
    assert_eq!(within(watch.changed()).await.names().collect::<Vec<_>>(), ["sibling.sock"]);
    drop(sibling);
    assert_eq!(within(watch.changed()).await.names().count(), 0);
}

#[tokio::test]
async fn files_that_are_no_sockets_do_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let mut watch = SocketWatch::new(directory.path());
    for round in 0..10 {
        let path = directory.path().join("kubelet_internal_checkpoint");
        std::fs::write(&path, round.to_string()).unwrap();
    }
    let _listener = UnixListener::bind(directory.path().join("a.sock")).unwrap();
    let sockets = within(watch.changed()).await;
    assert_eq!(sockets.names().collect::<Vec<_>>(), ["a.sock"]);
}

#[tokio::test(start_paused = true)]
async fn without_inotify_the_directory_is_read_at_intervals() {
    let directory = tempfile::tempdir().unwrap();
    let mut watch = SocketWatch::polling(directory.path(), Duration::from_secs(2));
    assert!(watch.is_polling());
    let _listener = UnixListener::bind(directory.path().join("a.sock")).unwrap();
    assert!(within(watch.changed()).await.get("a.sock").is_some());
    std::fs::remove_file(directory.path().join("a.sock")).unwrap();
    assert!(within(watch.changed()).await.get("a.sock").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_appears_later_is_watched_from_then_on() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("device-plugins");
    let mut watch = SocketWatch::new(&directory);
    assert!(watch.is_polling());
    std::fs::create_dir(&directory).unwrap();
    let _listener = UnixListener::bind(directory.join("a.sock")).unwrap();
    assert!(within(watch.changed()).await.get("a.sock").is_some());
    assert!(!watch.is_polling());
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_replaced_is_followed() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("device-plugins");
    std::fs::create_dir(&directory).unwrap();
    let _old = UnixListener::bind(directory.join("a.sock")).unwrap();
    let mut watch = SocketWatch::new(&directory);
    std::fs::rename(&directory, parent.path().join("away")).unwrap();
    std::fs::create_dir(&directory).unwrap();
    let _new = UnixListener::bind(directory.join("b.sock")).unwrap();
    let names: Vec<_> = tokio::time::timeout(Duration::from_secs(120), watch.changed())
        .await
        .unwrap()
        .names()
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(names, ["b.sock"]);
    assert!(!watch.is_polling());
}

#[test]
fn a_node_without_inotify_is_watched_by_the_clock_until_there_is_some() {
    // In a process of its own, with few file descriptors: `inotify_init` then says what an exhausted node says.
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "kubelet::tests::watch::without_descriptors"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[tokio::test(start_paused = true)]
#[ignore = "run by the test above"]
async fn without_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let _first = UnixListener::bind(directory.path().join("a.sock")).unwrap();
    let mut all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    all.pop();
    // One is left: enough to read a directory, not for inotify with its queue.
    let mut watch = SocketWatch::new(directory.path());
    assert!(watch.is_polling());
    assert!(watch.sockets().get("a.sock").is_some());
    std::fs::remove_file(directory.path().join("a.sock")).unwrap();
    assert!(within(watch.changed()).await.get("a.sock").is_none());
    assert!(watch.is_polling());

    // With none at all nothing is known, and nothing is said.
    let _last = std::fs::File::open("/dev/null").unwrap();
    let unseen = std::pin::pin!(tokio::time::timeout(Duration::from_secs(60), watch.changed())).await;
    assert!(unseen.is_err());

    drop(all);
    let _second = UnixListener::bind(directory.path().join("b.sock")).unwrap();
    assert!(within(watch.changed()).await.get("b.sock").is_some());
    assert!(!watch.is_polling());
}
