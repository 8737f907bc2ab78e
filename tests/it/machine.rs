//! A recorded host whose parts a test moves about, as the kernel and people do; and what would be on offer on it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pcidp::config::Config;
use pcidp::host::recording::Recording;
use pcidp::host::{HostRoot, Wanted, scan};
use pcidp::model::Inventory;
use pcidp::pool::{Pools, assign};

use crate::node::check;

/// The text of `testdata/hosts/<name>.host`.
pub(crate) fn recorded(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/hosts/{name}.host"));
    fs::read_to_string(path).unwrap()
}

/// Lays out a recording that stands in the test itself.
pub(crate) fn lay_out(text: &str) -> HostRoot {
    Recording::parse(text).unwrap_or_else(|error| panic!("{error}")).lay_out().unwrap()
}

/// The recorded host with more netlink answers.
pub(crate) fn host_with_answers(name: &str, lines: &[&str]) -> HostRoot {
    let mut text = recorded(name).trim_end().to_owned();
    assert!(text.contains("[netlink]"), "{name} has no netlink answers");
    for line in lines {
        text += &format!("\n  {line}");
    }
    lay_out(&(text + "\n"))
}

/// The directory of a PCI function.
pub(crate) fn function(host: &HostRoot, address: &str) -> PathBuf {
    host.path().join("sys/bus/pci/devices").join(address)
}

/// Writes a file below the root, with the directories above it.
pub(crate) fn write(place: &Path, content: &str) {
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, content).unwrap();
}

/// Makes a link, in the place of another one.
pub(crate) fn link(place: &Path, target: &str) {
    if place.symlink_metadata().is_ok() {
        fs::remove_file(place).unwrap();
    }
    symlink(target, place).unwrap();
}

/// Binds a function to a driver, or to none.
pub(crate) fn bind(host: &HostRoot, address: &str, driver: Option<&str>) {
    let place = function(host, address).join("driver");
    match driver {
        Some(driver) => link(&place, &format!("../../../../bus/pci/drivers/{driver}")),
        None => fs::remove_file(place).unwrap(),
    }
}

/// Moves a function into another IOMMU group.
pub(crate) fn regroup(host: &HostRoot, address: &str, group: u32) {
    link(&function(host, address).join("iommu_group"), &format!("../../../../kernel/iommu_groups/{group}"));
}

/// Takes a function off the bus.
pub(crate) fn unplug(host: &HostRoot, address: &str) {
    fs::remove_file(function(host, address)).unwrap();
}

/// Puts a function on the bus again.
pub(crate) fn plug(host: &HostRoot, address: &str, below: &str) {
    link(&function(host, address), &format!("../../../devices/{below}/{address}"));
}

/// Makes a device node, as a laid-out recording has them.
pub(crate) fn make_node(host: &HostRoot, path: &str) {
    write(&host.path().join(path.trim_start_matches('/')), "char 10:1 0600\n");
}

/// Removes a device node.
pub(crate) fn remove_node(host: &HostRoot, path: &str) {
    fs::remove_file(host.path().join(path.trim_start_matches('/'))).unwrap();
}

/// A config that must be without errors, with the prefix `x.io`.
pub(crate) fn config(text: &str) -> Config {
    let checked = check(text, "x.io");
    let errors: Vec<_> = checked.errors().map(|problem| &problem.message).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    checked.config
}

/// What a scan for a config finds.
pub(crate) fn inventory(host: &HostRoot, config: &Config) -> Inventory {
    scan(host, &Wanted::of(config))
}

/// The pools of a config, whatever errors it has elsewhere.
pub(crate) fn pools(host: &HostRoot, config: &Config) -> Pools {
    assign(config, &inventory(host, config))
}

/// The ids of each pool, by its name without the prefix.
pub(crate) fn offered(host: &HostRoot, text: &str) -> BTreeMap<String, Vec<String>> {
    let pools = pools(host, &config(text));
    let ids =
        |pool: &pcidp::pool::Pool| pool.members.iter().map(|member| member.device.id.to_string()).collect();
    pools.pools.iter().map(|pool| (pool.config.resource.name().to_owned(), ids(pool))).collect()
}

/// The ids of the only pool, called `r`, with these members beside its name.
pub(crate) fn only(host: &HostRoot, members: &str) -> Vec<String> {
    let text = format!(r#"{{"resourceList":[{{"resourceName":"r",{members}}}]}}"#);
    offered(host, &text).remove("r").unwrap()
}

/// The ids that a selector object takes.
pub(crate) fn selected(host: &HostRoot, selector: &str) -> Vec<String> {
    only(host, &format!(r#""selectors":{{{selector}}}"#))
}
