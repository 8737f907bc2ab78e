//! What runs on after an installation: the pod's main container, and whoever waits for the driver.

use std::time::Duration;

use super::check::{Problem, check};
use super::engine::EngineType;
use super::error::DriverError;
use super::found::Found;
use super::install::Tell;
use super::node::Node;
use super::permissions::{self, Permissions};
use super::record::{self, NotReady, Ready};
use super::watch::Watch;

/// What comes together is looked at together: 63 virtual functions make 63 nodes.
const SETTLE: Duration = Duration::from_millis(50);

/// Keeps `driver-ready` true and permissions as they should be, for ever: it ends when it is dropped, and leaves the driver
/// alone.
pub async fn hold(node: &Node, types: &[EngineType], wanted: &Permissions, tell: Tell<'_>) {
    let mut watch = Watch::new(node);
    tell_deaf(&watch, tell);
    let mut said = None;
    loop {
        let now = match look(node, types, wanted, tell) {
            Ok(None) => "another process changes the driver".to_owned(),
            Ok(Some(problems)) if problems.is_empty() => "ready".to_owned(),
            Ok(Some(problems)) => {
                let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
                format!("not ready: {}", problems.join("; "))
            }
            Err(error) => format!("not ready: {error}"),
        };
        if said.as_ref() != Some(&now) {
            tell(&now);
            said = Some(now);
        }
        watch.changed().await;
        tokio::time::sleep(SETTLE).await;
    }
}

/// One look: sets permissions, then says in the validation file what is so. `None` where an installation is under way; it
/// writes the file itself when it ends.
fn look(
    node: &Node,
    types: &[EngineType],
    wanted: &Permissions,
    tell: Tell<'_>,
) -> Result<Option<Vec<Problem>>, DriverError> {
    let Some(_lock) = node.try_lock()? else { return Ok(None) };
    let judged = || {
        let checked = check(node, types, Some(wanted))?;
        let entries: Vec<String> = checked.entries.values().flatten().cloned().collect();
        match checked.problems.iter().any(Problem::is_of_permissions) {
            false => Ok((checked, Vec::new())),
            true => {
                let changed = permissions::set(node, &entries, wanted)?;
                Ok((check(node, types, Some(wanted))?, changed))
            }
        }
    };
    let (checked, changed) = match judged() {
        Ok(judged) => judged,
        Err(error) => {
            Ready::remove(node)?;
            return Err(error);
        }
    };
    for path in changed {
        tell(&format!("set the permissions of {path}"));
    }
    if !checked.problems.is_empty() {
        Ready::remove(node)?;
        return Ok(Some(checked.problems));
    }
    let earlier = Ready::read(node).ok();
    let driver = earlier.as_ref().map_or("found", |ready| ready.driver.as_str());
    let ready = Ready::new(node, driver, &Found::read(node)?, &checked)?;
    if earlier.as_ref() != Some(&ready) {
        ready.write(node)?;
    }
    Ok(Some(Vec::new()))
}

/// Whether the pod of the driver has done its work: the driver can be used, or was removed as asked for.
///
/// # Errors
/// Says why not.
pub fn ready(node: &Node) -> Result<(), NotReady> {
    match Ready::read(node) {
        Err(NotReady::Absent(_)) if record::is_removed(node) => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

/// Waits until the driver is ready, or until an engine of one of these types has an entry: where no driver is installed by
/// this program, an entry is all that there will be.
pub async fn wait(node: &Node, or_device: &[EngineType], tell: Tell<'_>) {
    let mut watch = Watch::new(node);
    tell_deaf(&watch, tell);
    let mut has_said = false;
    loop {
        if let Ok(ready) = Ready::read(node) {
            let entries: Vec<String> = ready.entries.into_values().flatten().collect();
            return tell(&format!("the driver is ready: {}", entries.join(", ")));
        }
        let entries = node.host().list("/sys/class/uacce").unwrap_or_default();
        let is_wanted = |entry: &&String| or_device.iter().any(|kind| kind.makes(entry));
        if let Some(entry) = entries.iter().find(is_wanted) {
            return tell(&format!("an engine is there: {entry}"));
        }
        if !has_said {
            has_said = true;
            tell(&awaited(node, or_device));
        }
        watch.changed().await;
    }
}

fn awaited(node: &Node, or_device: &[EngineType]) -> String {
    let file = format!("waiting for {}", Ready::path(node).display());
    match or_device {
        [] => file,
        kinds => {
            let names: Vec<String> = kinds.iter().map(|kind| format!("{}-*", kind.driver())).collect();
            format!("{file}, or for {} in /sys/class/uacce", names.join(" or "))
        }
    }
}

fn tell_deaf(watch: &Watch, tell: Tell<'_>) {
    if let Some(error) = &watch.deaf {
        tell(&format!("warning: inotify: {error}; looking every few seconds instead"));
    }
}
