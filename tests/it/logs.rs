//! What the plugin logs, and what it never does.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use pcidp::kubelet::stand_in::StandIn;
use pcidp::observe::Report;
use tempfile::TempDir;
use tokio::net::UnixStream;

use crate::observed::{Page, ask, request};

/// `pcidp run` as a process, logging to a file; ended when it is dropped.
struct Running {
    child: Child,
    directory: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(directory: TempDir, host: &str, config: &str, level: &str) -> Self {
        let path = |name: &str| directory.path().join(name);
        fs::write(path("config.json"), config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_pcidp"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["run", "--log-level", level, "--log-format", "json"])
            .args(["--host-root", &format!("testdata/hosts/{host}.host")])
            .args([Path::new("--config-file"), &path("config.json")])
            .args([Path::new("--device-plugin-dir"), directory.path()])
            .args([Path::new("--device-info-dir"), &path("devinfo")])
            .stderr(File::create(path("log")).unwrap())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    async fn get(&self, path: &str) -> Option<Page> {
        let mut entries = fs::read_dir(self.directory.path().join("pcidp")).ok()?;
        let socket = entries.next()?.ok()?.path();
        Some(ask(UnixStream::connect(socket).await.ok()?, &request("GET", path)).await)
    }

    async fn until(&self, what: &str, condition: impl Fn(&str, &str) -> bool) {
        let wait = async {
            loop {
                if let Some(status) = self.get("/status").await
                    && let Some(metrics) = self.get("/metrics").await
                    && condition(&status.body, &metrics.body)
                {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{what}: {}", self.log());
    }
}

fn is_ready(status: &str) -> bool {
    serde_json::from_str::<Report>(status).is_ok_and(|report| report.unready().is_empty())
}

#[tokio::test]
async fn values_of_additional_info_are_in_no_log_no_status_and_no_page() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = StandIn::start(directory.path()).await.unwrap();
    let config = r#"{"resourceList":[{"resourceName":"r","selectors":{"drivers":["iavf"]},
        "additionalInfo":{"*":{"token":"hunter2-secret"}}}]}"#;
    let running = Running::start(directory, "demo", config, "trace");
    running.until("it is ready", |status, _| is_ready(status)).await;
    kubelet.eventually("devices", |state| state.allocatable("intel.com/r") == 2).await.unwrap();
    let answers = kubelet.allocate("intel.com/r", &[vec!["0000:17:11.0".to_owned()]]).await.unwrap();
    assert!(answers[0].envs.values().any(|value| value.contains("hunter2-secret")));
    // A bad neighbour makes the config be quoted in messages.
    let bad = config.replace("}]}", r#","zone":"hunter2-secret"},{"resourceName":"q","deviceType":"zz"}]}"#);
    for text in [bad.replace("hunter2", "later-hunter2"), bad.replace("]}", "")] {
        fs::write(running.directory.path().join("config.json"), text).unwrap();
        running.until("it is not ready", |status, _| !is_ready(status)).await;
        for path in ["/", "/status", "/readyz", "/metrics"] {
            let page = running.get(path).await.unwrap();
            assert!(!page.body.contains("hunter2"), "{path}: {}", page.body);
        }
    }
    assert!(running.log().contains("devices changed"));
    assert!(!running.log().contains("hunter2"), "{}", running.log());
}

// OBS-04
#[tokio::test]
async fn a_pool_that_stays_unregistered_is_told_once_and_no_vf_has_a_line_of_its_own() {
    let config = r#"{"resourceList":[{"resourceName":"r","selectors":{"functionTypes":["vf"]}}]}"#;
    let running = Running::start(tempfile::tempdir().unwrap(), "eight-vfs", config, "info");
    let failed = "pcidp_registrations_total{resource=\"intel.com/r\",outcome=\"failed\"} ";
    let failures = |metrics: &str| {
        metrics.lines().find_map(|line| line.strip_prefix(failed)?.parse::<u32>().ok()).unwrap_or_default()
    };
    running.until("it tried again", |_, metrics| failures(metrics) > 3).await;
    let log = running.log();
    assert_eq!(log.matches("not registered").count(), 1, "{log}");
    assert_eq!(log.matches("devices changed").count(), 1, "{log}");
    assert!(!log.contains("DEBUG") && log.lines().count() < 8, "{log}");
    let addresses = regex_lite::Regex::new(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]").unwrap();
    assert!(!addresses.is_match(&log), "{log}");
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log}");
}

#[tokio::test]
async fn the_level_of_the_log_is_the_one_that_was_asked_for() {
    let config = r#"{"resourceList":[{"resourceName":"r","selectors":{"functionTypes":["vf"]}}]}"#;
    for (level, is_there, is_not) in [
        ("error", "", "INFO"),
        ("warn", "WARN", "INFO"),
        ("10", "INFO", "DEBUG"),
        ("debug", "DEBUG", "TRACE"),
    ] {
        let running = Running::start(tempfile::tempdir().unwrap(), "eight-vfs", config, level);
        running.until("it tried", |_, metrics| metrics.contains("outcome=\"failed\"")).await;
        let log = running.log();
        assert!(log.contains(is_there) && !log.contains(is_not), "{level}: {log}");
    }
}
