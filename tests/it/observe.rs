//! What the plugin tells of itself: to `pcidp status`, to probes, to Prometheus.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pcidp::daemon::Options;
use pcidp::observe::Report;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::machine::unplug;
use crate::node::host;
use crate::observed::{Observed, request};

const TWO: &str = r#"{"resourceList":[
    {"resourceName":"a","selectors":{"pciAddresses":["17:11.0"]}},
    {"resourceName":"b","selectors":{"pciAddresses":["17:11.1"]}}]}"#;

/// The value of a metric with exactly these labels.
fn value(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

// OBS-01, OBS-03
#[tokio::test]
async fn status_shows_pools_health_with_reasons_links_and_who_holds_what() {
    let plugin = Observed::with_something_to_see().await;
    plugin.address().await;
    insta::assert_snapshot!("status", plugin.printed(&[]).await);
    insta::assert_snapshot!("status_json", plugin.printed(&["-o", "json"]).await);
    plugin.stop().await;
}

// OBS-01
#[tokio::test]
async fn a_refused_pool_is_not_ready_with_the_kubelets_words_and_stays_alive() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    plugin.ready().await;
    assert_eq!(plugin.printed(&["--ready"]).await, "ok\n--- exit 0\n");
    plugin.kubelet.refuse(Some("no, not you"));
    plugin.kubelet.drop_stream("x.io/b");
    plugin.eventually("b is refused", |report| report.pools[1].refusal.is_some()).await;
    let page = plugin.get("/readyz").await;
    assert_eq!(page.status, 503);
    assert_eq!(page.body.lines().count(), 1, "{}", page.body);
    assert!(page.body.contains("x.io/b") && page.body.contains("no, not you"), "{}", page.body);
    assert_eq!(plugin.get("/healthz").await.status, 200);
    let output = plugin.status(&["--ready"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no, not you"));
    assert_eq!(plugin.status(&["--live"]).await.status.code(), Some(0));
    plugin.kubelet.refuse(None);
    let report = plugin.ready().await;
    assert_eq!(report.pools[1].refusal, None);
    plugin.stop().await;
}

// OBS-01
#[tokio::test]
async fn a_kubelet_that_is_away_makes_it_unready_and_not_dead() {
    let mut plugin = Observed::start(&host("demo"), TWO).await;
    plugin.ready().await;
    plugin.kubelet.stop().await;
    plugin.eventually("it is unready", |report| report.unready().len() == 2).await;
    assert_eq!(plugin.get("/readyz").await.status, 503);
    assert_eq!(plugin.get("/healthz").await.status, 200);
    plugin.kubelet.restart().await.unwrap();
    plugin.ready().await;
    let metrics = plugin.get("/metrics").await.body;
    assert_eq!(value(&metrics, "pcidp_kubelet_restarts_total"), Some(1.0), "{metrics}");
    assert!(plugin.is_running());
    plugin.stop().await;
}

// OBS-01
#[tokio::test]
async fn a_pool_without_a_device_is_ready_and_one_that_waits_is_not() {
    let empty = r#"{"resourceList":[{"resourceName":"r","selectors":{"vendors":["ffff"]}}]}"#;
    let plugin = Observed::start(&host("demo"), empty).await;
    let report = plugin.ready().await;
    assert_eq!(report.pools[0].link, "waiting for a device");
    plugin.configure(
        r#"{"resourceList":[{"resourceName":"r","selectors":{"drivers":["iavf"]},"waitFor":{"devices":9},"settle":"0s"}]}"#,
    );
    plugin
        .eventually("it waits", |report| report.pools[0].waits_for == Some(9) && report.pools[0].devices == 2)
        .await;
    let page = plugin.get("/readyz").await;
    assert_eq!((page.status, page.body.as_str()), (503, "x.io/r waits for 9 devices and has 2\n"));
    plugin.stop().await;
}

// RLD-02
#[tokio::test]
async fn a_bad_config_is_visible_until_it_is_good_again_and_the_last_one_is_served_on() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    let hash = plugin.ready().await.config.hash;
    plugin.configure(r#"{"resourceList":["#);
    let report = plugin.eventually("it is bad", |report| report.config.error.is_some()).await;
    assert_eq!((report.pools.len(), &report.config.hash), (2, &hash));
    insta::assert_snapshot!("status_bad_config", plugin.printed(&[]).await);
    assert_eq!(value(&plugin.get("/metrics").await.body, "pcidp_config_unusable"), Some(1.0));
    // The same text as before is no new config, but it is no error any more.
    plugin.configure(TWO);
    plugin.ready().await;
    plugin.configure(&TWO.replace(r#""resourceName":"b","#, r#""resourceName":"b","deviceType":"zz","#));
    let report = plugin.eventually("b is refused", |report| !report.config.refused.is_empty()).await;
    assert_eq!((report.pools.len(), report.config.refused[0].served_on), (2, true));
    assert!(plugin.get("/readyz").await.body.starts_with("x.io/b is served in its last good form: "));
    // A bad entry matches nothing; its pool is served, and the problem is told.
    plugin.configure(&TWO.replace("17:11.1", "17:zz"));
    let report = plugin.ready().await;
    assert!(
        report.config.problems[0].contains("`17:zz` is not a PCI address"),
        "{:?}",
        report.config.problems
    );
    let only_a = r#"{"resourceList":[{"resourceName":"a","selectors":{"pciAddresses":["17:11.0"]}}]}"#;
    plugin.configure(only_a);
    plugin.eventually("b is gone", |report| report.pools.len() == 1).await;
    let counted = |metrics: &str| {
        ["applied", "partly", "refused", "unchanged"].map(|outcome| {
            value(metrics, &format!("pcidp_config_reloads_total{{outcome=\"{outcome}\"}}")).unwrap()
        })
    };
    let metrics = plugin.get("/metrics").await.body;
    assert_eq!(counted(&metrics), [2.0, 1.0, 1.0, 1.0], "{metrics}");
    plugin.stop().await;
}

// OBS-02
#[tokio::test]
async fn metrics_are_openmetrics_with_units_and_labels_of_this_config_only() {
    let host = host("noiommu-1-vfio");
    let config = r#"{"resourceList":[{"resourceName":"raw","selectors":{"drivers":["vfio-pci"]}},
        {"resourceName":"none","selectors":{"vendors":["ffff"]}}]}"#;
    let plugin = Observed::start(&host, config).await;
    let report = plugin.ready().await;
    let id = report.devices.iter().find(|device| device.resource.is_some()).unwrap().id.clone();
    plugin.kubelet.allocate("x.io/raw", &[vec![id]]).await.unwrap();
    plugin.kubelet.allocate("x.io/raw", &[vec!["0000:ff:1f.7".to_owned()]]).await.unwrap_err();
    let page = plugin.get("/metrics").await;
    assert!(page.head.contains("application/openmetrics-text; version=1.0.0"), "{}", page.head);
    assert!(page.body.ends_with("# EOF\n"));
    // Which bucket a time falls into is another each time, and so is the order of a family.
    let mut lines: Vec<&str> = page
        .body
        .lines()
        .filter(|line| !line.contains("_sum") && (!line.contains("_bucket") || line.contains("+Inf")))
        .filter(|line| !line.contains("pcidp_scan_duration_seconds_"))
        .collect();
    lines.sort_by_key(|line| {
        let name =
            line.strip_prefix("# ").and_then(|line| line.split_once(' ')).map_or(*line, |(_, rest)| rest);
        let name = name.split([' ', '{']).next().unwrap();
        let suffixes = ["_total", "_bucket", "_count", "_info"];
        let family = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        (family, !line.starts_with('#'), *line)
    });
    insta::assert_snapshot!("metrics", lines.join("\n"));
    let readme = include_str!("../../README.md");
    for line in page.body.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        assert!(readme.contains(&format!("`{name}{suffix}`")), "the README does not name {name}{suffix}");
    }
    plugin.configure(r#"{"resourceList":[]}"#);
    plugin.eventually("no pool is left", |report| report.pools.is_empty()).await;
    let gone = async {
        while plugin.get("/metrics").await.body.contains("x.io/raw") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    plugin.stop().await;
}

#[tokio::test]
async fn the_address_tells_the_same_and_only_to_get_and_head() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    plugin.ready().await;
    for (path, content) in [
        ("/", "text/html"),
        ("/status", "application/json"),
        ("/metrics", "application/openmetrics-text"),
        ("/healthz", "text/plain"),
        ("/readyz?verbose", "text/plain"),
    ] {
        let page = plugin.at_address(&request("GET", path)).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.head.contains(&format!("content-type: {content}")), "{}", page.head);
        assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
        let page = plugin.at_address(&request("HEAD", path)).await;
        assert_eq!((page.status, page.body.as_str()), (200, ""), "{path}");
    }
    assert_eq!(plugin.at_address(&request("GET", "/../../etc/passwd")).await.status, 404);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let page = plugin.at_address(&request(method, "/")).await;
        assert_eq!(page.status, 405, "{method}");
        assert!(page.head.contains("allow: GET, HEAD"), "{}", page.head);
    }
    plugin.stop().await;
}

#[tokio::test]
async fn requests_without_end_are_cut_off_and_a_crowd_at_the_address_leaves_the_socket_free() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    plugin.ready().await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000));
    let address = plugin.address().await;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    // The server may have hung up before all of it is sent.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(plugin.at_address("\x16\x03\x01 nonsense\r\n\r\n").await.status >= 400);
    // More than there are places; each has said nothing yet.
    let mut crowd = Vec::new();
    for _ in 0..40 {
        crowd.push(TcpStream::connect(&address).await.unwrap());
    }
    assert_eq!(plugin.get("/healthz").await.status, 200);
    drop(crowd);
    assert_eq!(plugin.at_address(&request("GET", "/healthz")).await.status, 200);
    plugin.stop().await;
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_hung_up_on() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    let mut stream = TcpStream::connect(plugin.address().await).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    tokio::time::pause();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "it is still open");
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_and_had_once_it_is_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let with_address = |options| Options { http: Some(address), ..options };
    let plugin = Observed::start_with(&host("demo"), TWO, with_address).await;
    let is_told = |report: &Report| report.http.as_ref().is_some_and(|http| http.contains("in use"));
    plugin.eventually("it is told", is_told).await;
    plugin.ready().await;
    drop(taken);
    assert_eq!(plugin.address().await, address.to_string());
    plugin.stop().await;
}

#[tokio::test]
async fn sockets_of_dead_instances_are_removed_and_live_ones_are_left() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    plugin.ready().await;
    let directory = plugin.stop().await;
    let folder = directory.path().join("pcidp");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "its own socket is left");
    let (dead, live) = (folder.join("status-00000001.sock"), folder.join("status-00000002.sock"));
    drop(UnixListener::bind(&dead).unwrap());
    let _listener = UnixListener::bind(&live).unwrap();
    let own =
        pcidp::observe::instances::prepare(directory.path(), &pcidp::kubelet::Instance::random()).unwrap();
    assert!(!dead.exists() && live.exists() && !own.exists());
}

#[tokio::test]
async fn a_socket_that_somebody_removed_is_made_again() {
    let quick = |options| Options { scan_every: Duration::from_millis(50), ..options };
    let plugin = Observed::start_with(&host("demo"), TWO, quick).await;
    plugin.ready().await;
    fs::remove_file(plugin.sockets().remove(0)).unwrap();
    plugin.ready().await;
    plugin.stop().await;
}

/// A second instance, in a process of its own; it ends with the test, however that ends.
struct Second(Child);

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it, and waits until it answers. Its name.
async fn second(plugin: &Observed) -> (Second, String) {
    let first: Vec<PathBuf> = plugin.sockets();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcidp"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run", "--config-file", "examples/demo.json", "--host-root", "testdata/hosts/demo.host"])
        .arg("--device-plugin-dir")
        .arg(plugin.directory())
        .arg("--device-info-dir")
        .arg(plugin.directory().join("devinfo"));
    let second = Second(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    loop {
        let new = plugin.sockets().into_iter().find(|path| !first.contains(path));
        if let Some(path) = new {
            let name = path.file_stem().unwrap().to_str().unwrap().replace("status-", "");
            if plugin.status(&["--live", "--instance", &name]).await.status.success() {
                return (second, name);
            }
        }
        tokio::task::yield_now().await;
    }
}

// RUN: a rolling update with surge
#[tokio::test]
async fn of_two_instances_each_can_be_asked_and_another_containers_is_never_a_probes() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    let first = plugin.ready().await.instance;
    let (_other, newest) = second(&plugin).await;
    let output = plugin.status(&["-o", "json"]).await;
    let shown: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown.instance, newest);
    assert!(String::from_utf8(output.stderr).unwrap().contains("--instance"));
    let output = plugin.status(&["--instance", &first, "-o", "json"]).await;
    let shown: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown.instance, first);
    let mut elsewhere = Command::new("unshare");
    elsewhere
        .args(["--pid", "--fork", "--mount", "--mount-proc", env!("CARGO_BIN_EXE_pcidp"), "status", "--live"])
        .arg("--device-plugin-dir")
        .arg(plugin.directory());
    let output = tokio::task::spawn_blocking(move || elsewhere.output()).await.unwrap();
    match output {
        Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("unshare") => {
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains("no instance runs in this container; 2 elsewhere"), "{text}");
            assert_eq!(output.status.code(), Some(1));
        }
        _ => {
            use std::io::Write as _;
            let text = "SKIPPED: a probe was not tried in a PID namespace of its own: unshare cannot\n";
            std::io::stderr().write_all(text.as_bytes()).unwrap();
        }
    }
    plugin.stop().await;
}

// OBS-01
#[tokio::test]
async fn a_plugin_that_hangs_is_found_by_the_probe() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    let first = plugin.ready().await.instance;
    let (other, hangs) = second(&plugin).await;
    let stopped = nix::unistd::Pid::from_raw(other.0.id().try_into().unwrap());
    nix::sys::signal::kill(stopped, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let output = plugin.status(&["--live", "--instance", &hangs]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no answer within"));
    assert_eq!(plugin.status(&["--live", "--instance", &first]).await.status.code(), Some(0));
    plugin.stop().await;
}

#[tokio::test]
async fn without_an_instance_status_and_probes_fail_and_say_where_they_looked() {
    let plugin = Observed::start(&host("demo"), TWO).await;
    let directory = plugin.stop().await;
    for arguments in [&[][..], &["--live"], &["--ready"]] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_pcidp"));
        command.arg("status").arg("--device-plugin-dir").arg(directory.path()).args(arguments);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("no instance runs here") && text.contains("pcidp"), "{text}");
    }
}

// OBS-04
#[tokio::test]
async fn what_a_device_is_held_back_for_is_told_though_it_is_gone() {
    let host = host("demo");
    let plugin = Observed::start(&host, TWO).await;
    plugin.ready().await;
    plugin.holds("x.io/a", &["0000:17:11.0"]);
    unplug(&host, "0000:17:11.0");
    plugin.look_again.notify_one();
    let report = plugin.eventually("it is unhealthy", |report| report.pools[0].healthy == 0).await;
    let device = report.devices.iter().find(|device| device.id == "0000:17:11.0").unwrap();
    assert_eq!(device.reason.as_deref(), Some("it is gone from the machine"));
    assert_eq!((device.holders[0].pod.as_str(), report.pools[0].held), ("8a0f", 1));
    plugin.stop().await;
}
