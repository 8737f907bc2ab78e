//! Rules that a snapshot would not show well.

use std::time::Duration;

use super::{checked, pool, rendered};
use crate::config::fields::{FIELDS, Kind, Level};
use crate::config::{DeviceType, Effect, InfoTarget, Severity};
use crate::model::DeviceId;

#[test]
fn a_config_without_pools_serves_nothing_and_is_valid() {
    for text in ["{}", r#"{"resourceList":null}"#, r#"{"resourceList":[]}"#, "[]", "\u{feff}{}"] {
        let checked = checked(text);
        assert!(checked.has_config() && checked.errors().next().is_none(), "{text}");
        assert!(checked.config.pools.is_empty() && checked.config.refused.is_empty());
    }
}

#[test]
fn what_is_no_config_at_all_is_told_apart() {
    for text in [
        "",
        " ",
        "nonsense",
        "7",
        "null",
        r#"[{"resourceName":"a"}]"#,
        "{",
        r#"{"resourceList":{}}"#,
        "// only",
    ] {
        let checked = checked(text);
        assert!(!checked.has_config(), "{text}");
        assert_eq!(checked.config.pools.len(), 0);
    }
}

#[test]
fn only_comments_and_trailing_commas_go_beyond_json() {
    for text in [
        "{'a':1}",
        "{a:1}",
        "{\"a\":0x1}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":NaN}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":\"\\x41\"}",
        "{\"a\":\"\u{1}\"}",
        "{\u{a0}}",
        "{}{}",
        "{\"a\":01}",
        "{,}",
        "{\"a\":1,,}",
        "[,]",
        "{\"a\":1]",
    ] {
        assert!(!checked(text).has_config(), "{text}");
    }
    let text = "{/* a */\"resourceList\":[],// b\n}";
    assert!(checked(text).has_config());
}

#[test]
fn deep_nesting_and_large_files_are_refused() {
    for deep in
        ["[".repeat(200_000), "{\"a\":".repeat(200_000), format!("{}{}", "[".repeat(600), "]".repeat(600))]
    {
        assert!(!checked(&deep).has_config());
    }
    let large = format!("{{{}}}", " ".repeat(5 << 20));
    assert!(checked(&large).problems[0].message.contains("bytes"));
}

#[test]
fn a_bad_pool_leaves_the_others_alone() {
    let text = r#"{"resourceList":[null,{"resourceName":"a","deviceType":"gpu"},{"resourceName":"b","selectors":{"vendors":["8086"]}}]}"#;
    let checked = checked(text);
    let served: Vec<String> = checked.config.pools.iter().map(|pool| pool.resource.to_string()).collect();
    assert_eq!(served, ["intel.com/b"]);
    let refused: Vec<_> =
        checked.config.refused.iter().map(|pool| (pool.position, pool.resource.as_deref())).collect();
    assert_eq!(refused, [(0, None), (1, Some("intel.com/a"))]);
}

#[test]
fn a_bad_entry_is_left_out_and_never_widens_a_selector() {
    let text =
        pool(r#""selectors":{"vendors":["8086","intel"],"devices":["none"],"drivers":[],"pfNames":null}"#);
    let checked = checked(&text);
    let selector = &checked.config.pools[0].selectors[0];
    assert_eq!(selector.vendors.as_ref().unwrap().len(), 1);
    assert_eq!(selector.devices.as_ref().unwrap().len(), 0);
    assert!(selector.drivers.is_none() && selector.pf_names.is_none());
    assert!(checked.errors().all(|problem| problem.effect == Effect::Entry));
    assert_eq!(checked.problems[1].json_path, "resourceList[0].selectors.devices[0]");
}

#[test]
fn a_bad_entry_of_exclude_spoils_the_pool() {
    let text = pool(r#""selectors":{"pfNames":["p0"],"exclude":{"vfIndexes":["x"]}}"#);
    assert_eq!(checked(&text).config.refused.len(), 1);
}

#[test]
fn no_driver_and_a_driver_named_none_are_both_valid() {
    let checked = checked(&pool(r#""selectors":{"drivers":["","none"]}"#));
    assert!(checked.problems.is_empty());
    assert_eq!(checked.config.pools[0].selectors[0].drivers.as_ref().unwrap(), &["", "none"]);
}

#[test]
fn the_last_of_several_keys_counts() {
    let checked = checked(&pool(
        r#""selectors":{"drivers":["a"],"Drivers":["b"]},"deviceType":"gpu","devicetype":"accelerator""#,
    ));
    let pool = &checked.config.pools[0];
    assert_eq!(pool.device_type, DeviceType::Accelerator);
    assert_eq!(pool.selectors[0].drivers.as_ref().unwrap(), &["b"]);
    assert_eq!(checked.warnings().count(), 2);
}

#[test]
fn a_selector_of_another_type_is_not_even_looked_at() {
    let text = pool(
        r#""deviceType":"accelerator","selectors":{"drivers":["a"],"pfNames":7,"vdpaType":"x","isRdma":true}"#,
    );
    let checked = checked(&text);
    assert_eq!(
        (checked.errors().count(), checked.warnings().count()),
        (0, 3),
        "{}",
        rendered(&checked, &text)
    );
    assert!(!checked.config.pools[0].selectors[0].is_rdma);
}

#[test]
fn additional_info_knows_devices_in_every_spelling() {
    let text = pool(
        r#""selectors":{"drivers":["a"]},"additionalInfo":{"*":{"k":"all","z":"a"},"3B:00.1":{"k":"one"},"mlx5_core.sf.7":{"k":"sf"}}"#,
    );
    let checked = checked(&text);
    assert!(checked.problems.is_empty(), "{}", rendered(&checked, &text));
    let info = &checked.config.pools[0].additional_info;
    assert!(info.0.contains_key(&InfoTarget::Device(DeviceId::from("0000:3b:00.1"))));
    assert_eq!(info.of(&DeviceId::from("0000:3b:00.1"))["k"], "one");
    assert_eq!(info.of(&DeviceId::from("0000:3b:00.1"))["z"], "a");
    assert_eq!(info.of(&DeviceId::from("mlx5_core.sf.7"))["k"], "sf");
}

#[test]
fn defaults_are_those_of_the_table() {
    let checked = checked(&pool(r#""selectors":{"drivers":["a"]}"#));
    let pool = &checked.config.pools[0];
    assert_eq!((pool.replicas, pool.settle, pool.allow_no_iommu), (1, Duration::from_secs(1), true));
    assert_eq!(pool.health.down_after, Duration::from_secs(5));
    assert!(pool.wait_for.is_none() && !pool.pre_start_check && !pool.exclude_topology);
}

#[test]
fn columns_count_characters_and_lines_end_at_line_feeds() {
    let checked = checked("\u{feff}{\r\n \"ä\": 1, \"ö\": 2}");
    let places: Vec<_> = checked.problems.iter().map(|problem| (problem.line, problem.column)).collect();
    assert_eq!(places, [(2, 2), (2, 10)]);
}

#[test]
fn an_excerpt_points_at_the_value() {
    let text =
        "{\"resourceList\": [\n\t{\"resourceName\": \"nic\", \"selectors\": {\"vendors\": [\"intel\"]}}\n]}";
    let shown = rendered(&checked(text), text);
    let lines: Vec<&str> = shown.lines().collect();
    let caret = lines[3].find('^').unwrap();
    assert!(lines[2][caret..].starts_with("\"intel\""), "{shown}");
    assert_eq!(lines[3].matches('^').count(), "\"intel\"".len());
}

#[test]
fn a_name_belongs_to_the_first_pool_that_bears_it_even_if_that_pool_is_refused() {
    let text = r#"{"resourceList":[{"resourceName":"a","selectors":[null]},{"resourceName":"a","selectors":{"drivers":["a"]}}]}"#;
    let checked = checked(text);
    assert!(checked.config.pools.is_empty());
    assert!(checked.config.refused[1].reason.contains("resourceList[0]"), "{checked:?}");
}

#[test]
fn an_exclude_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
    for exclude in ["7", "[]", r#"{"drivers":"a"}"#, r#"{"exclude":{"drivers":["a"]}}"#] {
        let text = pool(&format!(r#""selectors":{{"drivers":["a"],"exclude":{exclude}}}"#));
        let checked = checked(&text);
        assert_eq!(checked.config.refused.len(), 1, "{text}");
    }
}

#[test]
fn needing_vhost_net_selects_nothing() {
    let checked = checked(&pool(r#""selectors":{"needVhostNet":true}"#));
    assert!(checked.warnings().any(|problem| problem.message.contains("every device")));
    assert!(checked.config.pools[0].selectors[0].need_vhost_net);
}

#[test]
fn the_prefix_of_the_command_line_is_the_default() {
    let options = crate::config::Options { default_prefix: "openshift.io", path: "c" };
    let text = r#"{"resourceList":[{"resourceName":"a","selectors":{"drivers":["a"]}},{"resourceName":"b","resourcePrefix":"","selectors":{"drivers":["a"]}},{"resourceName":"c","resourcePrefix":"x.org","selectors":{"drivers":["a"]}}]}"#;
    let config = crate::config::check(text, &options).config;
    let names: Vec<String> = config.pools.iter().map(|pool| pool.resource.to_string()).collect();
    assert_eq!(names, ["openshift.io/a", "openshift.io/b", "x.org/c"]);
}

/// The text of a config in which one field has this value.
fn with(name: &str, level: Level, value: &str) -> String {
    let types = FIELDS.iter().find(|field| field.name == name && field.level == level).unwrap().applies;
    let device_type = match name {
        "deviceType" => String::new(),
        _ => format!(r#""deviceType":"{}","#, types[0].as_str()),
    };
    let member = format!(r#""{name}":{value}"#);
    let name = if name == "resourceName" { "" } else { r#""resourceName":"nic","# };
    let members = match level {
        Level::File => return format!("{{{member}}}"),
        Level::Pool => member,
        Level::Selector => format!(r#""selectors":{{{member}}}"#),
        Level::Health => format!(r#""health":{{{member}}}"#),
        Level::WaitFor => format!(r#""waitFor":{{{member}}}"#),
    };
    format!(r#"{{"resourceList":[{{{device_type}{name}{members}}}]}}"#)
}

#[test]
fn every_key_of_the_table_is_read() {
    for field in FIELDS {
        // No key takes a flag, but for flags.
        let value = if matches!(field.kind, Kind::Flag) { "7" } else { "true" };
        let text = with(field.name, field.level, value);
        let checked = checked(&text);
        let told = checked
            .errors()
            .any(|problem| problem.json_path.ends_with(field.name) && problem.message.contains("such as"));
        assert!(told, "{}: {}", field.name, rendered(&checked, &text));
    }
}

#[test]
fn every_example_and_default_of_the_table_is_valid() {
    for field in FIELDS {
        for value in [field.example, field.default] {
            let text = with(field.name, field.level, value);
            let checked = checked(&text);
            let wrong = checked.errors().find(|problem| problem.json_path.ends_with(field.name));
            let required = value == "null" && field.name == "resourceName";
            assert!(wrong.is_none() || required, "{}: {}", field.name, rendered(&checked, &text));
        }
    }
}

#[test]
fn names_of_a_level_differ_in_more_than_case() {
    for level in Level::ALL {
        let mut names: Vec<String> = level.fields().map(|field| field.name.to_lowercase()).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}

#[test]
fn problems_come_in_file_order() {
    let text = pool(r#""colour":1,"selectors":{"vendors":["x"]},"settle":5,"excludeTopology":"yes""#);
    let checked = checked(&text);
    let columns: Vec<usize> = checked.problems.iter().map(|problem| problem.column).collect();
    assert!(columns.is_sorted() && columns.len() >= 4, "{columns:?}");
    assert_eq!(checked.problems[0].severity, Severity::Warning);
}
