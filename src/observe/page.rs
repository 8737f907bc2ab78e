//! The page: PF → VF → pool → pod, by NUMA node. One file of HTML: nothing is fetched, nothing is run.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::{DeviceReport, Report};

/// Colours are those of the reader's own light or dark; health is told by a word, too.
const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--bad:#c9190b;--dim:#777}
@media(prefers-color-scheme:dark){:root{--good:#3fb950;--bad:#ff6a5c;--dim:#999}}
body{font:14px/1.45 system-ui,sans-serif;margin:1.5rem auto;max-width:72rem;padding:0 1rem}
h1{margin:0;font-size:1.5rem}h2{margin:1.6rem 0 .4rem;font-size:1.15rem}h3{margin:1rem 0 .2rem;font-size:1rem}
table{border-collapse:collapse;width:100%}th{font-weight:600;color:var(--dim)}
th,td{border-bottom:1px solid var(--line);padding:.2rem .7rem .2rem 0;text-align:left;vertical-align:top}
code{font:13px ui-monospace,monospace}.dim{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}
.good::before,.bad::before{content:'\\25CF\\00A0'}[title]{cursor:help;text-decoration:underline dotted}
h3 .dim{font-weight:400}.functions{table-layout:fixed;overflow-wrap:anywhere}.functions th:nth-child(1){width:7%}
.functions th:nth-child(2){width:14%}.functions th:nth-child(3),.functions th:nth-child(4){width:12%}
.functions th:nth-child(5){width:24%}.functions th:nth-child(6){width:11%}
ul{margin:.2rem 0;padding-left:1.2rem;white-space:pre-wrap}";

/// The page for people.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // A string takes whatever is written.
    let _ = write(&mut out, report);
    out
}

/// A text as it stands in HTML, between tags and in quotes.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => f.write_char(other),
        })
    }
}

fn write(out: &mut String, report: &Report) -> fmt::Result {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta http-equiv=\"refresh\" content=\"30\">\n\
         <title>pcidp</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>pcidp</h1>\n<p class=\"dim\">"
    )?;
    write!(out, "version {}, instance {}", Text(&report.version), Text(&report.instance))?;
    if let Some(source) = &report.config.source {
        write!(out, ", config {}", Text(source))?;
    }
    if let Some(hash) = &report.config.hash {
        write!(out, " <code>{}</code>", Text(hash))?;
    }
    writeln!(out, "</p>")?;
    let reasons = report.unready();
    match reasons.is_empty() {
        true => writeln!(out, "<p><span class=\"good\">ready</span></p>")?,
        false => {
            writeln!(out, "<p><span class=\"bad\">not ready</span></p>")?;
            list(out, reasons.iter().map(String::as_str))?;
        }
    }
    pools(out, report)?;
    for (node, groups) in by_node(report) {
        match node {
            Some(node) => writeln!(out, "<h2>NUMA node {node}</h2>")?,
            None => writeln!(out, "<h2>No NUMA node</h2>")?,
        }
        for (address, members) in groups {
            group(out, address, &members)?;
        }
    }
    let notes: Vec<String> = report
        .config
        .problems
        .iter()
        .cloned()
        .chain(report.notes.iter().map(|note| format!("{}: {}", note.path, note.cause)))
        .chain(report.deaf.iter().map(|deaf| format!("not listened to: {deaf}")))
        .chain(report.holders_unknown.iter().map(|error| format!("who holds what is not known: {error}")))
        .collect();
    if !notes.is_empty() {
        writeln!(out, "<h2>Notes</h2>")?;
        list(out, notes.iter().map(String::as_str))?;
    }
    writeln!(out, "</body>\n</html>")
}

fn list<'a>(out: &mut String, items: impl Iterator<Item = &'a str>) -> fmt::Result {
    writeln!(out, "<ul>")?;
    for item in items {
        writeln!(out, "<li>{}</li>", Text(item))?;
    }
    writeln!(out, "</ul>")
}

fn pools(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(out, "<h2>Pools</h2>")?;
    if report.pools.is_empty() {
        return writeln!(out, "<p class=\"dim\">none</p>");
    }
    writeln!(
        out,
        "<table>\n<tr><th>pool<th>type<th>devices<th>healthy<th>held<th>shares<th>policy<th>kubelet</tr>"
    )?;
    for pool in &report.pools {
        write!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>",
            Text(&pool.resource),
            Text(&pool.device_type),
            pool.devices,
            pool.healthy,
            pool.held,
            pool.replicas,
            Text(&pool.allocation_policy.join(", ")),
        )?;
        let class = match (pool.is_streaming, pool.is_unheard) {
            (true, _) => "good",
            (false, true) => "bad",
            (false, false) => "dim",
        };
        marked(out, class, &pool.link, pool.refusal.as_deref())?;
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table>")
}

/// A word in a colour; why, on hover.
fn marked(out: &mut String, class: &str, word: &str, why: Option<&str>) -> fmt::Result {
    match why {
        Some(why) => {
            write!(out, "<span class=\"{class}\" title=\"{}\">{}</span>", Text(why), Text(word))
        }
        None => write!(out, "<span class=\"{class}\">{}</span>", Text(word)),
    }
}

/// A function without a PF here stands for itself.
fn port(device: &DeviceReport) -> &str {
    device.pf_address.as_deref().unwrap_or(&device.id)
}

type Groups<'a> = BTreeMap<&'a str, Vec<&'a DeviceReport>>;

/// The functions by PF, and those by the NUMA node of the PF; what has none comes last.
fn by_node(report: &Report) -> Vec<(Option<u32>, Groups<'_>)> {
    let mut groups = Groups::new();
    for device in &report.devices {
        groups.entry(port(device)).or_default().push(device);
    }
    let mut nodes: BTreeMap<(bool, Option<u32>), Groups<'_>> = BTreeMap::new();
    for (address, mut members) in groups {
        let is_port = |device: &&&DeviceReport| device.id == address;
        let first = members.iter().find(is_port).or(members.first());
        let node = first.and_then(|device| device.numa_node);
        members.sort_by_key(|device| (device.id != address, device.index, device.id.clone()));
        nodes.entry((node.is_none(), node)).or_default().insert(address, members);
    }
    nodes.into_iter().map(|((_, node), groups)| (node, groups)).collect()
}

fn group(out: &mut String, address: &str, members: &[&DeviceReport]) -> fmt::Result {
    let own = members.iter().find(|device| device.id == address);
    let names = match own {
        Some(own) => own.netdevs.clone(),
        None => members.first().map(|device| device.pf_names.clone()).unwrap_or_default(),
    };
    write!(out, "<h3>{}", Text(&names.join(", ")))?;
    if !names.is_empty() {
        write!(out, " ")?;
    }
    write!(out, "<code>{}</code>", Text(address))?;
    if let Some(driver) = own.and_then(|own| own.driver.as_deref()) {
        write!(out, " <span class=\"dim\">{}</span>", Text(driver))?;
    }
    writeln!(out, "</h3>")?;
    // A PF with VFs is in no pool; its line would say nothing.
    let shown: Vec<_> = members
        .iter()
        .filter(|device| {
            device.id != address
                || device.resource.is_some()
                || device.default_route.is_some()
                || members.len() == 1
        })
        .collect();
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<table class=\"functions\">\n<tr><th>function<th>address<th>driver<th>netdev<th>pool<th>health<th>pod</tr>"
    )?;
    for device in shown {
        row(out, device)?;
    }
    writeln!(out, "</table>")
}

fn row(out: &mut String, device: &DeviceReport) -> fmt::Result {
    let mut function = device.function_type.to_ascii_uppercase();
    if let Some(index) = device.index {
        let _ = write!(function, " {index}");
    }
    write!(
        out,
        "<tr><td>{}<td><code>{}</code><td>{}<td>{}<td>",
        Text(&function),
        Text(&device.id),
        Text(device.driver.as_deref().unwrap_or("none")),
        Text(&device.netdevs.join(", ")),
    )?;
    match (&device.resource, &device.default_route) {
        (Some(resource), _) => {
            write!(out, "{}<td>", Text(resource))?;
            let (class, word) = if device.healthy { ("good", "healthy") } else { ("bad", "unhealthy") };
            marked(out, class, word, device.reason.as_deref())?;
        }
        (None, Some(route)) => {
            marked(out, "dim", "never offered", Some(&format!("it carries {route}")))?;
            write!(out, "<td>")?;
        }
        (None, None) => write!(out, "<span class=\"dim\">none</span><td>")?,
    }
    let pods = device.holders.iter().map(|holder| format!("{} ({})", holder.pod, holder.container));
    writeln!(out, "<td>{}</tr>", Text(&pods.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{ConfigReport, HolderReport, NoteReport, PoolReport};

    #[test]
    fn nothing_that_others_wrote_becomes_markup() {
        let evil = || "\"'><script>alert(1)</script>&<img src=x onerror=y>".to_owned();
        let device = DeviceReport {
            id: evil(),
            pf_address: Some(evil()),
            pf_names: vec![evil()],
            driver: Some(evil()),
            netdevs: vec![evil()],
            resource: Some(evil()),
            reason: Some(evil()),
            holders: vec![HolderReport { pod: evil(), container: evil() }],
            ..DeviceReport::default()
        };
        let routed =
            DeviceReport { id: "x".to_owned(), default_route: Some(evil()), ..DeviceReport::default() };
        let pool = PoolReport {
            resource: evil(),
            device_type: evil(),
            allocation_policy: vec![evil()],
            link: evil(),
            refusal: Some(evil()),
            is_unheard: true,
            devices: 1,
            ..PoolReport::default()
        };
        let report = Report {
            version: evil(),
            instance: evil(),
            config: ConfigReport {
                source: Some(evil()),
                hash: Some(evil()),
                error: Some(evil()),
                problems: vec![evil()],
                ..ConfigReport::default()
            },
            pools: vec![pool],
            devices: vec![device, routed],
            notes: vec![NoteReport { path: evil(), cause: evil() }],
            deaf: vec![evil()],
            holders_unknown: Some(evil()),
            ..Report::default()
        };
        let page = render(&report);
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
        // Whatever is quoted ends where the page ends it.
        let hostile = page.matches("&quot;&#39;&gt;&lt;script&gt;").count();
        assert_eq!(page.matches("alert(1)").count(), hostile);
        assert!(hostile > 20, "{hostile}");
    }
}
