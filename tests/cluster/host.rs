//! A recorded host, laid out for `host.sh`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;

use pcidp::host::netlink::{Family, TABLE_MAIN};
use pcidp::host::recording::{Answers, Entry, RecordedLink, Recording};
use pcidp::host::{HostRoot, Wanted, scan};

/// Address of the node, and the gateway behind its uplink, whatever was recorded: the API server listens there.
const ADDRESS: &str = "192.168.77.2/24";
const GATEWAY: &str = "192.168.77.1";
/// The other end of a netdev has its index plus this.
const WIRE: u32 = 100_000;

/// Lays out the tree, with the batch for ip(8) in its file `links`. It goes with the result.
pub(crate) fn lay_out(recording: &Recording) -> io::Result<HostRoot> {
    let host = recording.lay_out()?;
    fs::write(host.path().join("links"), batch(recording))?;
    for node in missing_nodes(recording, &host) {
        let path = host.path().join(node.trim_start_matches('/'));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, "char 1:3 0600\n")?;
    }
    Ok(host)
}

/// A recording that was taken in a container has no device nodes, and others lack the one that all groups of VFIO share.
/// The devices need some, of whatever number: nobody opens them here.
fn missing_nodes(recording: &Recording, host: &HostRoot) -> Vec<String> {
    let mut nodes = Vec::new();
    if !recording.has_below("/dev") {
        let inventory = scan(host, &Wanted::everything());
        nodes.extend(inventory.devices().iter().flat_map(|device| device.required_nodes()));
    }
    if recording.has_below("/dev/vfio") || nodes.iter().any(|node| node.starts_with("/dev/vfio/")) {
        nodes.push("/dev/vfio/vfio".to_owned());
    }
    nodes.retain(|node| recording.get(node).is_none());
    nodes
}

/// The netdevs of the recording as commands of ip(8). This kernel may have no bonds, teams and switches: each becomes a
/// bridge, whose ports know their master as well. A VLAN becomes a plain netdev.
fn batch(recording: &Recording) -> String {
    let mut answers = recording.answers().cloned().unwrap_or_default();
    add_netdevs_of_the_tree(recording, &mut answers);
    let mut batch = String::new();
    for link in answers.links.iter().filter(|link| link.name != "lo") {
        let RecordedLink { index, name, .. } = link;
        let is_master = answers.links.iter().any(|port| port.master.as_ref() == Some(name));
        let mut line = |text: String| batch.extend([text.as_str(), "\n"]);
        if is_master {
            line(format!("link add name {name} index {index} type bridge"));
        } else {
            let (wire, other) = (format!("wire{index}"), index + WIRE);
            line(format!("link add name {name} index {index} type veth peer name {wire} index {other}"));
            if link.carrier != Some(false) {
                line(format!("link set {wire} up"));
            }
        }
        for other in &link.alternative_names {
            line(format!("link property add dev {name} altname {other}"));
        }
        if link.up {
            line(format!("link set {name} up"));
        }
    }
    for link in &answers.links {
        if let Some(master) = &link.master {
            let _ = writeln!(batch, "link set {} master {master}", link.name);
        }
    }
    batch + &routes(&answers)
}

fn add_netdevs_of_the_tree(recording: &Recording, answers: &mut Answers) {
    let mut found: BTreeMap<&str, Option<u32>> = BTreeMap::new();
    for (path, entry) in recording.entries() {
        let Some((name, rest)) = path.rsplit_once("/net/").and_then(|(_, rest)| rest.split_once('/')) else {
            continue;
        };
        let index = found.entry(name).or_default();
        if let ("ifindex", Entry::File(content)) = (rest, entry) {
            *index = content.trim().parse().ok();
        }
    }
    for (position, (name, index)) in (1..).zip(found) {
        if answers.links.iter().all(|link| link.name != name) {
            let index = index.unwrap_or(WIRE / 2 + position);
            let name = name.to_owned();
            answers.links.push(RecordedLink { index, name, up: true, ..RecordedLink::default() });
        }
    }
}

fn routes(answers: &Answers) -> String {
    let mut batch = String::new();
    let mut has_address = false;
    for route in answers.routes.iter().filter(|route| route.kind == "unicast") {
        let Some(interface) = route.interfaces.first() else { continue };
        let mut to = match route.family {
            Family::Inet => "default".to_owned(),
            Family::Inet6 => "::/0".to_owned(),
        };
        if route.family == Family::Inet && route.table == TABLE_MAIN && !has_address {
            has_address = true;
            let _ = writeln!(batch, "address add {ADDRESS} dev {interface}");
            let _ = write!(to, " via {GATEWAY}");
        }
        let (table, protocol, metric) = (route.table, route.protocol, route.metric);
        let _ = writeln!(
            batch,
            "route append {to} dev {interface} table {table} proto {protocol} metric {metric}"
        );
    }
    if !has_address {
        // The API server wants a default route.
        let _ = writeln!(batch, "link add name up0 type veth peer name up1");
        let _ = writeln!(batch, "link set up1 up\nlink set up0 up\naddress add {ADDRESS} dev up0");
        let _ = writeln!(batch, "route add default via {GATEWAY} dev up0");
    }
    batch
}
