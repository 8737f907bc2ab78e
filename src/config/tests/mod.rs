//! The language, rule by rule.

mod files;
mod properties;
mod rules;

use super::{Checked, Options, check};

const OPTIONS: Options<'static> = Options { default_prefix: "intel.com", path: "config.json" };

fn checked(text: &str) -> Checked {
    check(text, &OPTIONS)
}

/// Every problem as it is shown.
fn rendered(checked: &Checked, text: &str) -> String {
    let shown = checked.problems.iter().map(|problem| problem.render(OPTIONS.path, text));
    shown.collect::<Vec<_>>().join("\n")
}

/// One pool named `nic` with these members.
fn pool(members: &str) -> String {
    format!(r#"{{"resourceList":[{{"resourceName":"nic",{members}}}]}}"#)
}
