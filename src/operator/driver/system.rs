//! The operating system of a node.

use super::error::DriverError;
use super::node::Node;

/// What the driver was tried on.
const TESTED: [&str; 2] = ["22.03", "24.03"];

/// What to say of an operating system that the driver was not tried on
/// (<https://www.freedesktop.org/software/systemd/man/latest/os-release.html>).
///
/// # Errors
/// Where its description is there and cannot be read.
pub(super) fn untested(node: &Node) -> Result<Option<String>, DriverError> {
    let text = match node.file("/etc/os-release")? {
        Some(text) => text,
        None => node.file("/usr/lib/os-release")?.unwrap_or_default(),
    };
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches(['"', '\''])).filter(|value| !value.is_empty())
    };
    if field("ID") == Some("openEuler")
        && field("VERSION_ID").is_some_and(|version| TESTED.contains(&version))
    {
        return Ok(None);
    }
    let name = field("PRETTY_NAME").or(field("ID")).unwrap_or("an unknown operating system");
    Ok(Some(format!("the driver was not tried on {name}; it was on openEuler {}", TESTED.join(" and "))))
}
