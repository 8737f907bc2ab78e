//! The page.

use super::Report;

/// The page for people.
pub fn render(report: &Report) -> String {
    report.version.clone()
}
