//! The image of the plugin that goes with kae-operator.

use std::process::Command;

use pcidp::host::{Wanted, scan};
use pcidp::operator::crd::KaePolicySpec;
use pcidp::operator::render;
use pcidp::pool::assign;
use serde_json::Value;

use super::deployments::read;
use super::node::{check, host};

/// The config that the image has for when none is mounted.
#[test]
fn the_plugin_s_image_offers_hpre_engines_by_itself() {
    let text = read("deployments/kae-device-plugin.json");
    let own: Value = serde_json::from_str(&text).unwrap();
    let rendered = render::config_text(&KaePolicySpec::default()).unwrap();
    assert_eq!(own, serde_json::from_str::<Value>(&rendered).unwrap(), "as the operator configures it");
    let checked = check(&text, "intel.com");
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    let pools = assign(&checked.config, &scan(&host("kunpeng-920"), &Wanted::of(&checked.config)));
    assert_eq!(pools.pools.len(), 1);
    assert_eq!(checked.config.pools[0].resource.to_string(), "openfuyao.com/kae.hpre");
    assert!(!pools.pools[0].members.is_empty());

    let file = read("deployments/Dockerfile");
    assert!(file.contains("FROM pcidp AS kae-device-plugin\nCOPY dist/kae-device-plugin/ /\n"));
    let place =
        "install -D -m 0644 deployments/kae-device-plugin.json dist/kae-device-plugin/etc/pcidp/config.json";
    assert!(read("deployments/build-binaries").contains(place));
    let help = Command::new(env!("CARGO_BIN_EXE_pcidp")).args(["run", "--help"]).output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("[default: /etc/pcidp/config.json]"));
}
