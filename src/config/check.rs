//! From text to a checked config.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;

use super::fields::{FIELDS, Level};
use super::hint::closest;
use super::pool;
use super::problem::{Effect, Found, Problem, Severity, locate, without_mark};
use super::reader::{At, Reader, described};
use super::syntax::{self, Parsed};
use super::types::{Config, RefusedPool};

/// What a config's meaning depends on beside its text.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// `--resource-prefix`.
    pub default_prefix: &'a str,
    /// The file as its user would type it, for messages.
    pub path: &'a str,
}

/// A config and everything that is wrong with it.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// What can be served; empty where the file as a whole is unusable.
    pub config: Config,
    /// In file order.
    pub problems: Vec<Problem>,
}

impl Checked {
    /// Whether the file could be used at all: it is JSON, and an object.
    pub fn has_config(&self) -> bool {
        !self.problems.iter().any(|problem| problem.effect == Effect::File)
    }

    /// The problems because of which something is not served as written.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.of(Severity::Error)
    }

    /// The problems that cost nothing.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.of(Severity::Warning)
    }

    fn of(&self, severity: Severity) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.severity == severity)
    }
}

/// Checks the text of a config file.
pub fn check(text: &str, options: &Options<'_>) -> Checked {
    let text = without_mark(text);
    let mut reader = Reader::default();
    let parsed = syntax::parse(text);
    let (pools, hidden) = match &parsed {
        Ok(parsed) => {
            more_than_json(&mut reader, parsed);
            let hidden = parsed.value.as_ref().map(secrets).unwrap_or_default();
            (file(&mut reader, parsed.value.as_ref(), options), hidden)
        }
        Err(refusal) => {
            reader.found.push(whole_file(refusal.span.clone(), refusal.message.clone()));
            (Vec::new(), secrets_of_broken_text(text, &refusal.span))
        }
    };
    let problems = locate(text, reader.found, &Arc::from(hidden));
    let mut first_errors: HashMap<usize, &Problem> = HashMap::new();
    for problem in &problems {
        if let Effect::Pool(position) = problem.effect {
            first_errors.entry(position).or_insert(problem);
        }
    }
    let mut config = Config::default();
    for (position, pool) in pools {
        match (first_errors.get(&position), pool.config) {
            (None, Some(pool)) => config.pools.push(Arc::new(pool)),
            (error, _) => config.refused.push(RefusedPool {
                position,
                resource: pool.resource,
                reason: error.map(|problem| problem.sentence(options.path)).unwrap_or_default(),
            }),
        }
    }
    let checked = Checked { config, problems };
    match checked.has_config() {
        true => checked,
        false => Checked { config: Config::default(), ..checked },
    }
}

fn whole_file(span: Range<usize>, message: String) -> Found {
    Found { severity: Severity::Error, effect: Effect::File, json_path: String::new(), span, message }
}

fn more_than_json(reader: &mut Reader, parsed: &Parsed<'_>) {
    for comma in &parsed.trailing_commas {
        let message =
            "a comma before a closing bracket is not JSON; remove it, other readers stumble over it";
        reader.warning_at("", comma.clone(), message.to_owned());
    }
    if let Some(first) = parsed.comments.first() {
        let more = match parsed.comments.len() - 1 {
            0 => String::new(),
            more => format!(" ({more} more follow)"),
        };
        let message =
            format!("a comment is not JSON{more}; it is passed over here, other readers stumble over it");
        reader.warning_at("", first.clone(), message);
    }
}

fn file<'v>(
    reader: &mut Reader,
    value: Option<&'v Value<'v>>,
    options: &Options<'_>,
) -> Vec<(usize, pool::Read<'v>)> {
    let object = match value {
        Some(Value::Object(object)) => object,
        Some(value @ Value::Array(array)) if array.elements.is_empty() => {
            let message = "the file holds a list, and nothing is served; write {\"resourceList\": []}";
            reader.warning(&At::root(value), message.to_owned());
            return Vec::new();
        }
        Some(value) => {
            let hint = match value {
                Value::Array(_) => "put it into an object: {\"resourceList\": [...]}",
                _ => "write an object: {\"resourceList\": [...]}",
            };
            let message = format!("the file holds {}; {hint}", described(value));
            reader.error(&At::root(value), message);
            return Vec::new();
        }
        None => {
            let message = "the file is empty; write {\"resourceList\": []} to serve nothing";
            reader.found.push(whole_file(0..0, message.to_owned()));
            return Vec::new();
        }
    };
    let Some(root) = value.map(At::root) else {
        return Vec::new();
    };
    let keys = reader.keys(object, &root, Level::File);
    let entries = reader.objects(keys.get("resourceList")).unwrap_or_default();
    let mut pools = Vec::new();
    for (position, (object, at)) in entries.into_iter().enumerate() {
        let read = pool::read(reader, object, &at, position, options.default_prefix);
        pools.push((position, read));
    }
    pool::compare_names(reader, &pools);
    pools
}

/// The values that no excerpt may show: those of `additionalInfo`, wherever and however nearly it is written.
fn secrets(value: &Value<'_>) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    find_secrets(value, false, &mut ranges);
    ranges
}

fn find_secrets(value: &Value<'_>, secret: bool, ranges: &mut Vec<Range<usize>>) {
    match value {
        Value::Object(object) => {
            for property in &object.properties {
                let secret = secret || may_hold_secrets(property.name.as_str(), &property.value);
                find_secrets(&property.value, secret, ranges);
            }
        }
        Value::Array(array) => {
            for element in &array.elements {
                find_secrets(element, secret, ranges);
            }
        }
        leaf if secret => ranges.push(leaf.start()..leaf.end()),
        _ => {}
    }
}

/// A mistyped `additionalInfo` holds secrets all the same: any unknown key with an object behind it may be one.
fn may_hold_secrets(key: &str, value: &Value<'_>) -> bool {
    match FIELDS.iter().find(|field| field.name.eq_ignore_ascii_case(key)) {
        Some(field) => field.name == "additionalInfo",
        None => value.as_object().is_some() || closest(key, std::iter::once("additionalInfo")).is_some(),
    }
}

/// Without a tree it is not known which values are secret: from `additionalInfo` on, no line is shown.
fn secrets_of_broken_text(text: &str, span: &Range<usize>) -> Vec<Range<usize>> {
    let line_end =
        text.get(span.start..).and_then(|rest| rest.find('\n')).map_or(text.len(), |end| span.start + end);
    let before = text.get(..line_end).unwrap_or(text).to_ascii_lowercase();
    // An escape could spell the key too.
    let possible = before.contains("additional") || before.contains("\\u");
    possible.then_some(0..text.len()).into_iter().collect()
}
