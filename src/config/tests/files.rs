//! `testdata/config`, one idea a file.

use std::path::{Path, PathBuf};

use super::{OPTIONS, checked, rendered};
use crate::config::{Checked, Severity, default_config};

fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/config").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

fn errors(checked: &Checked) -> Vec<&str> {
    checked.errors().map(|problem| problem.message.as_str()).collect()
}

fn snapshot(name: &str, checked: &Checked, text: &str) {
    let mut shown = rendered(checked, text);
    for refused in &checked.config.refused {
        let resource = refused.resource.as_deref().unwrap_or("?");
        shown.push_str(&format!("\nrefused {}: {resource}: {}", refused.position, refused.reason));
    }
    insta::with_settings!({
        snapshot_path => "../../../testdata/config/snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, shown) });
}

#[test]
fn every_bad_file_says_what_is_wrong_and_what_to_write() {
    for (name, text) in files("bad") {
        let checked = checked(&text);
        assert!(!checked.problems.is_empty(), "{name} has no problem");
        snapshot(&format!("bad-{name}"), &checked, &text);
    }
}

#[test]
fn every_good_file_loads() {
    for (name, text) in files("good") {
        let checked = checked(&text);
        assert!(errors(&checked).is_empty(), "{name}: {}", rendered(&checked, &text));
        snapshot(&format!("good-{name}"), &checked, &text);
    }
}

#[test]
fn the_reference_sample_loads_with_exactly_one_warning() {
    let text = &files("good").into_iter().find(|(name, _)| name == "reference-sample").unwrap().1;
    let checked = checked(text);
    let warnings: Vec<_> = checked.warnings().map(|problem| (problem.line, &problem.message)).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].0, 86);
    assert_eq!(checked.config.pools.len() + checked.config.refused.len(), 10);
}

#[test]
fn what_an_operator_writes_loads_without_a_word() {
    let text = &files("good").into_iter().find(|(name, _)| name == "operator-form").unwrap().1;
    let checked = checked(text);
    assert!(checked.problems.is_empty(), "{}", rendered(&checked, text));
    let selector = &checked.config.pools[0].selectors[0];
    assert!(selector.is_rdma && !selector.need_vhost_net);
}

#[test]
fn no_file_shows_a_secret() {
    for folder in ["good", "bad"] {
        for (name, text) in files(folder) {
            let checked = checked(&text);
            let shown = format!("{}{checked:?}", rendered(&checked, &text));
            for secret in ["s3cr3t", "123456789", "00000000-0000"] {
                assert!(!shown.contains(secret), "{name}: {shown}");
            }
        }
    }
}

#[test]
fn the_default_config_loads_with_a_warning_for_its_comments_only() {
    let text = default_config();
    let checked = checked(&text);
    let problems: Vec<_> =
        checked.problems.iter().map(|problem| (problem.severity, &problem.message)).collect();
    assert_eq!(problems.len(), 1, "{}", rendered(&checked, &text));
    assert!(problems[0].0 == Severity::Warning && problems[0].1.contains("comment"));
    assert_eq!(checked.config.pools.len(), 1);
    for field in crate::config::fields::FIELDS {
        assert!(text.contains(&format!("\"{}\": ", field.name)), "{} is missing", field.name);
    }
    insta::with_settings!({
        snapshot_path => "../../../testdata/config/snapshots",
        prepend_module_to_snapshot => false,
    }, { insta::assert_snapshot!("default-config", text) });
}

#[test]
fn the_schema_is_the_one_that_was_reviewed() {
    insta::with_settings!({
        snapshot_path => "../../../testdata/config/snapshots",
        prepend_module_to_snapshot => false,
    }, { insta::assert_snapshot!("schema", serde_json::to_string_pretty(&crate::config::schema()).unwrap()) });
}

#[test]
fn the_place_of_a_refused_pool_is_in_its_reason() {
    let text = "{\"resourceList\":[\n  {\"resourceName\":\"a b\"}]}";
    let reason = &checked(text).config.refused[0].reason;
    assert!(reason.starts_with(&format!("{}:2:19: ", OPTIONS.path)), "{reason}");
}
