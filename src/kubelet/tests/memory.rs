//! How much memory endpoints take.

use super::shelf::{RESOURCE, Served, Shelf, within};
use crate::kubelet::api::deviceplugin::Empty;

fn anonymous_kibibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn fifty_endpoints_take_less_than_ten_mebibytes() {
    // In a process of its own: other tests take memory too.
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "kubelet::tests::memory::fifty_endpoints"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let taken = text.lines().find_map(|line| line.split_once("taken: ")).unwrap().1;
    let taken: u64 = taken.trim().parse().unwrap();
    assert!(taken < 10 * 1024, "{RESOURCE}: {taken} KiB");
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn fifty_endpoints() {
    let before = anonymous_kibibytes();
    let directory = tempfile::tempdir().unwrap();
    let list: String = (0..64).map(|number| format!("0000:3b:{number:02x}.0 ")).collect();
    let mut all = Vec::new();
    for number in 0..50 {
        let path = directory.path().join(format!("{number}.sock"));
        let served = Served::start(path, Shelf::default(), &list);
        let mut lists = served.client().await.list_and_watch(Empty {}).await.unwrap().into_inner();
        assert!(within(lists.message()).await.unwrap().is_some());
        all.push((served, lists));
    }
    println!("taken: {}", anonymous_kibibytes() - before);
}
