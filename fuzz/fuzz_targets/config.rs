//! Any text as a config: every problem is told with its place, and the same each time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcidp::config::{Checked, Options, check};

fn checked(text: &str) -> Checked {
    check(text, &Options { default_prefix: "x.io", path: "config.json" })
}

/// What a person sees of it.
fn shown(checked: &Checked, text: &str) -> Vec<String> {
    checked.problems.iter().map(|problem| problem.render("config.json", text)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    // As the plugin reads a file.
    let text = String::from_utf8_lossy(bytes);
    let first = checked(&text);
    // A mark at the beginning is passed over.
    let seen = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines: Vec<&str> = seen.split('\n').collect();
    for problem in &first.problems {
        let line = problem.line.checked_sub(1).and_then(|index| lines.get(index));
        let line = line.unwrap_or_else(|| panic!("line {} of {}: {problem:?}", problem.line, lines.len()));
        assert!((1..=line.chars().count() + 1).contains(&problem.column), "{problem:?} in {line:?}");
        assert!(!problem.message.is_empty() && !problem.message.contains(char::is_control), "{problem:?}");
        assert!(!problem.render("config.json", &text).is_empty());
    }
    let is_refused = |checked: &Checked| !checked.config.refused.is_empty() || !checked.has_config();
    assert!(!is_refused(&first) || first.errors().next().is_some(), "refused without a word");
    let second = checked(&text);
    assert_eq!(shown(&first, &text), shown(&second, &text));
    assert_eq!(format!("{:?}", first.config), format!("{:?}", second.config));
});
