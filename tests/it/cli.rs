//! The program as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;

fn pcidp(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcidp"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments);
    command.output().unwrap()
}

/// Exit code, standard output and standard error, as one text for a snapshot.
fn transcript(arguments: &[&str]) -> String {
    let output = pcidp(arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut transcript = format!("$ pcidp {}\n{}", arguments.join(" "), text(&output.stdout));
    if !output.stderr.is_empty() {
        transcript += &format!("--- stderr\n{}", text(&output.stderr));
    }
    transcript + &format!("--- exit {}\n", output.status.code().unwrap())
}

fn hosts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/hosts");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut hosts: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "host")).collect();
    hosts.sort();
    hosts
}

#[test]
fn devices_of_every_recorded_host_have_their_drivers_groups_pfs_indices_and_nodes() {
    let hosts = hosts();
    assert!(hosts.len() > 20);
    for path in hosts {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = transcript(&["devices", "--host-root", &format!("testdata/hosts/{name}.host")]);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(format!("devices_{name}"), text);
    }
}

#[test]
fn devices_tells_pools_and_json_tells_everything() {
    let host = "testdata/hosts/demo.host";
    let pools = transcript(&["devices", "--host-root", host, "--config-file", "examples/demo.json"]);
    insta::assert_snapshot!("devices_with_pools", pools);
    let json =
        transcript(&["devices", "--host-root", host, "--config-file", "examples/demo.json", "-o", "json"]);
    insta::assert_snapshot!("devices_json", json);
}

#[test]
fn explain_answers_why_a_device_is_not_in_a_pool() {
    let explain = |what: &str, host: &str, extra: &[&str]| {
        let host = format!("testdata/hosts/{host}.host");
        transcript(
            &[&["explain", what, "--host-root", &host, "--config-file", "examples/demo.json"], extra]
                .concat(),
        )
    };
    for (name, what) in [
        ("uplink", "0000:17:00.0"),
        ("pf_with_vfs", "17:00.1"),
        ("member", "0000:17:11.2"),
        ("kae_pf", "0000:79:00.0"),
        ("absent", "0000:ff:1f.7"),
        ("not_a_name", "sriov"),
    ] {
        insta::assert_snapshot!(format!("explain_{name}"), explain(what, "demo", &[]));
    }
    insta::assert_snapshot!("explain_json", explain("0000:17:11.0", "demo", &["-o", "json"]));
}

#[test]
fn explain_follows_a_pool_through_its_selectors() {
    let explain = |what: &str, host: &str, extra: &[&str]| {
        let host = format!("testdata/hosts/{host}.host");
        transcript(
            &[&["explain", what, "--host-root", &host, "--config-file", "examples/demo.json"], extra]
                .concat(),
        )
    };
    insta::assert_snapshot!("explain_pool", explain("sriov_vfio", "demo", &[]));
    insta::assert_snapshot!("explain_pool_empty", explain("openfuyao.com/kae.hpre", "two-socket", &[]));
    insta::assert_snapshot!("explain_pool_json", explain("intel.com/sriov_net", "demo", &["-o", "json"]));
}

#[test]
fn check_says_everything_at_once_and_exits_with_two_on_an_error() {
    let bad = "testdata/config/bad/entry-pf-range.json";
    insta::assert_snapshot!("check_bad", transcript(&["check", bad]));
    insta::assert_snapshot!("check_bad_json", transcript(&["check", bad, "-o", "json"]));
    let overlap = "testdata/config/good/overlap.json";
    let host = "testdata/hosts/two-socket.host";
    insta::assert_snapshot!("check_overlap", transcript(&["check", overlap, "--host-root", host]));
    assert_eq!(pcidp(&["check", "examples/demo.json"]).status.code(), Some(0));
    let warning = "testdata/config/bad/key-mistyped.json";
    assert_eq!(pcidp(&["check", warning]).status.code(), Some(0));
    assert_eq!(pcidp(&["check", "--strict", warning]).status.code(), Some(2));
    insta::assert_snapshot!("check_missing", transcript(&["check", "no/such/file.json"]));
}

#[test]
fn run_refuses_bad_input_with_two() {
    for arguments in [
        ["run", "--config-file", "no/such/file.json"],
        ["run", "--config-file", "testdata/config/bad/json-comma-missing.json"],
        ["run", "--log-level", "loud"],
        ["run", "--no-such-argument", "x"],
        ["run", "--registration", "watcher"],
    ] {
        assert_eq!(pcidp(&arguments).status.code(), Some(2), "{arguments:?}");
    }
    let bad = ["--strict", "--config-file", "testdata/config/bad/entry-pf-range.json"];
    assert_eq!(pcidp(&bad).status.code(), Some(2));
    // A config that is good, and a place that is not: nothing wrong with the input, and yet it cannot run.
    let nowhere = ["--config-file", "examples/demo.json", "--device-plugin-dir", "/no/such/directory"];
    assert_eq!(pcidp(&nowhere).status.code(), Some(1));
}

#[test]
fn the_demo_shows_the_main_job_and_ends_well() {
    let text = transcript(&["demo"]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    insta::assert_snapshot!("demo", text);
}

#[test]
fn a_snapshot_of_a_recorded_host_is_the_host() {
    let host = "testdata/hosts/demo.host";
    let output = pcidp(&["snapshot", "--host-root", host, "--identities"]);
    let body = |text: &str| {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        lines.join("\n")
    };
    let original = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(host)).unwrap();
    assert_eq!(body(&String::from_utf8(output.stdout).unwrap()), body(&original));
}

#[test]
fn this_very_machine_can_be_read_and_its_uplink_is_never_offered() {
    let output = pcidp(&["devices", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("all.json");
    fs::write(&config, r#"{"resourceList": [{"resourceName": "all", "selectors": {}}]}"#).unwrap();
    let with_route =
        report["devices"].as_array().unwrap().iter().filter(|device| device["defaultRoute"].is_string());
    for device in with_route {
        let id = device["id"].as_str().unwrap();
        let output = pcidp(&["explain", id, "--config-file", config.to_str().unwrap()]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("{id} is not in pool intel.com/all: default route")), "{text}");
    }
}

#[test]
fn what_is_generated_can_be_used() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("config.json");
    fs::write(&config, pcidp(&["generate", "config"]).stdout).unwrap();
    assert_eq!(pcidp(&["check", config.to_str().unwrap()]).status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&pcidp(&["generate", "schema"]).stdout).unwrap();
    assert!(schema["properties"]["resourceList"].is_object());
    for shell in ["bash", "zsh", "fish"] {
        assert!(!pcidp(&["generate", "completions", shell]).stdout.is_empty());
    }
    assert!(String::from_utf8(pcidp(&["generate", "man"]).stdout).unwrap().starts_with(".ie"));
}

#[test]
fn help_names_every_subcommand_and_argument() {
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["check", "--help"],
        &["devices", "--help"],
        &["explain", "--help"],
        &["snapshot", "--help"],
        &["status", "--help"],
    ] {
        insta::assert_snapshot!(
            format!("help_{}", arguments[0].trim_start_matches('-')),
            transcript(arguments)
        );
    }
}
