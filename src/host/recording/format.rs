//! Prints a recording; [`super::parse`] reads it back.

use std::collections::BTreeMap;
use std::fmt;

use super::{Answers, Entry, RecordedDevlink, RecordedLink, RecordedRoute, Recording};
use crate::host::netlink::{Family, TABLE_MAIN};

/// First line of a recording.
pub(super) const FIRST_LINE: &str = "pcidp-host 1";
/// Opens the answers of netlink.
pub(super) const NETLINK: &str = "[netlink]";

/// Names of `rtm_protocol`
/// (<https://github.com/torvalds/linux/blob/master/include/uapi/linux/rtnetlink.h>); others are numbers.
pub(super) const PROTOCOLS: [(&str, u8); 5] =
    [("kernel", 2), ("boot", 3), ("static", 4), ("ra", 9), ("dhcp", 16)];

/// Types of a route, as `ip route` names them.
pub(super) const ROUTE_KINDS: [&str; 4] = ["unicast", "blackhole", "unreachable", "prohibit"];

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        for line in &self.header {
            writeln!(f, "{}", format!("# {line}").trim_end())?;
        }
        let mut directories: BTreeMap<&str, Vec<(&str, &Entry)>> = BTreeMap::new();
        for (path, entry) in self.entries() {
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
            directories.entry(directory).or_default().push((name, entry));
        }
        for (directory, entries) in directories {
            writeln!(f, "\n{}", word(&format!("{directory}/")))?;
            for (name, entry) in entries {
                let name = word(name);
                match entry {
                    Entry::File(content) => writeln!(f, "  {name} = {}", text(content))?,
                    Entry::Link(target) => writeln!(f, "  {name} -> {}", word(target))?,
                    Entry::Unreadable(errno) => writeln!(f, "  {name} ! {errno:?}")?,
                    Entry::Node(node) => writeln!(f, "  {name} : {} {:04o}", node.number, node.mode)?,
                    Entry::Directory => writeln!(f, "  {name}/")?,
                }
            }
        }
        match &self.answers {
            Some(answers) => write!(f, "\n{NETLINK}\n{answers}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for link in &self.links {
            writeln!(f, "  {link}")?;
        }
        for route in &self.routes {
            writeln!(f, "  {route}")?;
        }
        for devlink in &self.devlinks {
            writeln!(f, "  {devlink}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RecordedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} {}", self.index, word(&self.name))?;
        if self.up {
            write!(f, " up")?;
        }
        match self.carrier {
            Some(true) => write!(f, " carrier")?,
            Some(false) => write!(f, " no-carrier")?,
            None => {}
        }
        for name in &self.alternative_names {
            write!(f, " altname={}", word(name))?;
        }
        if let Some(master) = &self.master {
            write!(f, " master={}", word(master))?;
        }
        if let Some(lower) = &self.lower {
            write!(f, " lower={}", word(lower))?;
        }
        if !self.kind.is_empty() {
            write!(f, " kind={}", word(&self.kind))?;
        }
        Ok(())
    }
}

impl fmt::Display for RecordedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::Inet => "inet",
            Family::Inet6 => "inet6",
        };
        write!(f, "route {family} default")?;
        for interface in &self.interfaces {
            write!(f, " dev={}", word(interface))?;
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via={gateway}")?;
        }
        match self.table {
            TABLE_MAIN => write!(f, " table=main")?,
            table => write!(f, " table={table}")?,
        }
        match PROTOCOLS.iter().find(|(_, number)| *number == self.protocol) {
            Some((name, _)) => write!(f, " proto={name}")?,
            None => write!(f, " proto={}", self.protocol)?,
        }
        if self.metric != 0 {
            write!(f, " metric={}", self.metric)?;
        }
        if self.kind != "unicast" {
            write!(f, " type={}", word(&self.kind))?;
        }
        Ok(())
    }
}

impl fmt::Display for RecordedDevlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "devlink {}", word(&self.device))?;
        if let Some(eswitch) = &self.eswitch {
            write!(f, " eswitch={}", word(eswitch))?;
        }
        if let Some(enable_rdma) = self.enable_rdma {
            write!(f, " enable_rdma={enable_rdma}")?;
        }
        for (key, value) in &self.info {
            write!(f, " info.{key}={}", word(value))?;
        }
        Ok(())
    }
}

/// The content of a file: plain where it is one line without anything invisible, else a JSON string.
fn text(content: &str) -> String {
    match content.strip_suffix('\n') {
        Some(line) if is_plain_text(line) => line.to_owned(),
        _ => quoted(content),
    }
}

/// Whether a line may be written as it is.
pub(super) fn is_plain_text(line: &str) -> bool {
    !line.is_empty() && line.trim() == line && !line.starts_with('"') && !line.contains(char::is_control)
}

/// A name or value: plain where it has no white space and nothing invisible, else a JSON string.
fn word(text: &str) -> String {
    if is_plain_word(text) { text.to_owned() } else { quoted(text) }
}

/// Whether a word may be written as it is.
pub(super) fn is_plain_word(text: &str) -> bool {
    let apart = |character: char| character.is_whitespace() || character.is_control();
    !text.is_empty() && !text.starts_with(['"', '#', '[']) && !text.contains(apart)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
