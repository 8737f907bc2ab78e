//! `pcidp status`: asks the instance of its own container, on the socket where that tells of itself.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::args::{OutputFormat, StatusArguments};
use super::{Outcome, table};
use crate::observe::instances::{self, Found};
use crate::observe::{DeviceReport, Report};

/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of an answer: some thousand devices have a tenth of it.
const MOST: usize = 64 << 20;

pub(super) fn status(arguments: &StatusArguments, out: &mut dyn Write) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = match (arguments.live, arguments.ready) {
        (true, _) => "/healthz",
        (_, true) => "/readyz",
        _ => "/status",
    };
    let is_probe = arguments.live || arguments.ready;
    let answer = runtime.block_on(async {
        let ask = async { get(find(arguments, is_probe).await?, path).await };
        match tokio::time::timeout(LIMIT, ask).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow!("there was no answer within {LIMIT:?}")),
        }
    });
    let (is_good, body) = answer?;
    if !is_good {
        return Err(anyhow!("{}", body.trim_end()).into());
    }
    if is_probe {
        write!(out, "{body}")?;
        return Ok(());
    }
    let report: Report = serde_json::from_str(&body).context("the instance is of another version")?;
    match arguments.format.output {
        OutputFormat::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        OutputFormat::Table => print(&report, out)?,
    }
    Ok(())
}

/// The instance that is meant. A probe must never hear of another container's.
async fn find(arguments: &StatusArguments, is_probe: bool) -> anyhow::Result<UnixStream> {
    let directory = &arguments.device_plugin_dir;
    let mut found = instances::all(directory).await;
    if let Some(wanted) = &arguments.instance {
        let name = format!("status-{wanted}.sock");
        found.retain(|found| found.path.file_name().is_some_and(|file| *file == *name));
    } else {
        let all = found.len();
        let (own, others) = instances::own(found);
        found = if own.is_empty() && !is_probe { others } else { own };
        if found.is_empty() && all > 0 {
            bail!("no instance runs in this container; {all} elsewhere on the node (--instance names one)");
        }
    }
    if found.len() > 1 && !is_probe {
        let names: Vec<String> = found.iter().map(|found| found.path.display().to_string()).collect();
        let text = format!("pcidp: the newest of {}; --instance names another", names.join(", "));
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    match found.into_iter().next() {
        Some(Found { stream, .. }) => Ok(stream),
        None => bail!("no instance runs here: none listens in {}/pcidp", directory.display()),
    }
}

/// One question. Whether the answer is good, and what it says.
async fn get(stream: UnixStream, path: &str) -> anyhow::Result<(bool, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let talking = tokio::spawn(connection);
    let request =
        http::Request::get(path).header(http::header::HOST, "localhost").body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let is_good = answer.status().is_success();
    let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(|error| anyhow!("{error}"))?;
    talking.abort();
    Ok((is_good, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

/// A time for people.
fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

fn print(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let dash = || "-".to_owned();
    writeln!(
        out,
        "pcidp {}, instance {}, up for {}, registration {}",
        report.version,
        report.instance,
        ago(report.uptime_seconds),
        report.registration
    )?;
    if let Some(source) = &report.config.source {
        let hash = report.config.hash.clone().unwrap_or_else(dash);
        writeln!(out, "config {source}, {hash}, served for {}", ago(report.config.age_seconds))?;
    }
    if let Some(address) = &report.http {
        writeln!(out, "http {address}")?;
    }
    let reasons = report.unready();
    match reasons.is_empty() {
        true => writeln!(out, "ready")?,
        false => writeln!(out, "not ready:")?,
    }
    for reason in &reasons {
        for line in reason.lines() {
            writeln!(out, "{}", table::wrap(&format!("  {line}"), 4))?;
        }
    }
    writeln!(out)?;
    if report.pools.is_empty() {
        writeln!(out, "no pools")?;
    } else {
        pools(report, out)?;
    }
    devices(report, out)?;
    for problem in &report.config.problems {
        writeln!(out, "{}", table::wrap(&format!("config: {problem}"), 4))?;
    }
    for note in &report.notes {
        writeln!(out, "{}", table::wrap(&format!("note: {}: {}", note.path, note.cause), 6))?;
    }
    for deaf in &report.deaf {
        writeln!(out, "{}", table::wrap(&format!("not listened to: {deaf}"), 4))?;
    }
    if let Some(error) = &report.holders_unknown {
        writeln!(out, "{}", table::wrap(&format!("who holds what is not known: {error}"), 4))?;
    }
    Ok(())
}

fn pools(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let header = ["POOL", "TYPE", "DEVICES", "HEALTHY", "HELD", "LINK"];
    let row = |pool: &crate::observe::PoolReport| {
        let shares = if pool.replicas > 1 { format!(" x{}", pool.replicas) } else { String::new() };
        vec![
            pool.resource.clone(),
            pool.device_type.clone(),
            format!("{}{shares}", pool.devices),
            pool.healthy.to_string(),
            if report.holders_unknown.is_some() { "?".to_owned() } else { pool.held.to_string() },
            pool.link.clone(),
        ]
    };
    table::write(out, &header, &report.pools.iter().map(row).collect::<Vec<_>>())
}

/// Those of which there is something to say; `-o json` has all.
fn devices(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let pool = |device: &DeviceReport| device.resource.clone().unwrap_or_else(|| "-".to_owned());
    let unhealthy: Vec<Vec<String>> = report
        .devices
        .iter()
        .filter(|device| !device.healthy)
        .map(|device| vec![device.id.clone(), pool(device), device.reason.clone().unwrap_or_default()])
        .collect();
    if !unhealthy.is_empty() {
        writeln!(out)?;
        table::write(out, &["UNHEALTHY", "POOL", "WHY"], &unhealthy)?;
    }
    let holders = |device: &DeviceReport| {
        let each = device.holders.iter().map(|holder| format!("{} ({})", holder.pod, holder.container));
        each.collect::<Vec<_>>().join(", ")
    };
    let held: Vec<Vec<String>> = report
        .devices
        .iter()
        .filter(|device| !device.holders.is_empty())
        .map(|device| vec![device.id.clone(), pool(device), holders(device)])
        .collect();
    if !held.is_empty() {
        writeln!(out)?;
        table::write(out, &["HELD", "POOL", "BY"], &held)?;
    }
    if !unhealthy.is_empty() || !held.is_empty() {
        writeln!(out)?;
    }
    Ok(())
}
