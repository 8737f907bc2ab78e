//! What the operator says of itself over HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::kit::{DRIVER, HPRE, PLUGIN, eventually};
use crate::world::World;

/// Status and body.
fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

pub(crate) fn health_and_metrics_are_served(world: &World) {
    let address_of = |log: String| {
        let line = log.lines().find(|line| line.contains("pages and metrics"))?.to_owned();
        Some(line.split_once("address=")?.1.trim().to_owned())
    };
    // A port that nobody answers on: nothing can be looked at, and nobody stands by.
    for arguments in [&["--http-addr=127.0.0.1:0"][..], &["--http-addr=127.0.0.1:0", "--leader-election"]] {
        let lost = world.operator_at(1, arguments);
        let address = eventually("it listens", || address_of(lost.log()));
        assert_eq!(get(&address, "/healthz").unwrap().0, 200);
        assert_eq!(get(&address, "/readyz").unwrap().0, 503, "{arguments:?}");
        assert!(lost.stop());
    }

    let operator = world.operator(&["--http-addr=127.0.0.1:0"]);
    let address = eventually("it listens", || address_of(operator.log()));
    eventually("it is ready without a policy", || (get(&address, "/readyz")?.0 == 200).then_some(()));
    world.create_node("engine", &[(HPRE, "true")]);
    world.create_policy(json!({}));
    world.wait_for_sets();
    world.run_set(DRIVER, 1, 1);
    world.run_set(PLUGIN, 1, 1);
    let metrics = eventually("the metrics tell that the policy is ready", || {
        let (_, text) = get(&address, "/metrics")?;
        text.contains("kae_operator_policy_ready 1\n").then_some(text)
    });
    for line in [
        "kae_operator_nodes{kind=\"kae\"} 1",
        "kae_operator_nodes{kind=\"zip\"} 0",
        "kae_operator_nfd_labels_seen 1",
        "kae_operator_leader 1",
        "kae_operator_driver_upgrades{state=\"failed\"} 0",
    ] {
        assert!(metrics.contains(&format!("{line}\n")), "{line} is missing in\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
}
