//! Reading values of the tree as the field table says, and noting whatever is wrong with them.

use std::fmt::Display;
use std::ops::Range;
use std::time::Duration;

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;

use super::entries;
use super::fields::{Entry, Field, Kind, Level, PASSED_OVER};
use super::hint;
use super::problem::{Effect, Found, Severity};
use super::types::DeviceType;
use super::words::Words;

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct At<'v> {
    pub(super) value: &'v Value<'v>,
    pub(super) path: String,
}

impl<'v> At<'v> {
    pub(super) fn root(value: &'v Value<'v>) -> Self {
        Self { value, path: String::new() }
    }

    /// An element of a list at this place.
    pub(super) fn element(&self, position: usize, value: &'v Value<'v>) -> Self {
        Self { value, path: format!("{}[{position}]", self.path) }
    }

    fn member_path(&self, key: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*' | '$');
        match (key.chars().all(plain) && !key.is_empty(), self.path.as_str()) {
            (true, "") => key.to_owned(),
            (true, path) => format!("{path}.{key}"),
            (false, path) => format!("{path}[{key:?}]"),
        }
    }

    fn span(&self) -> Range<usize> {
        self.value.start()..self.value.end()
    }
}

/// A key and its value, as written.
pub(super) struct Member<'v> {
    pub(super) key: &'v str,
    pub(super) key_span: Range<usize>,
    pub(super) at: At<'v>,
}

/// The known keys of an object; a key that is `null` is not there.
pub(super) struct Keys<'v>(Vec<(&'static Field, At<'v>)>);

impl<'v> Keys<'v> {
    pub(super) fn get(&self, name: &str) -> Option<(&'static Field, &At<'v>)> {
        let found = self.0.iter().find(|(field, _)| field.name == name);
        found.map(|(field, at)| (*field, at))
    }
}

/// A key that may be there: what the typed readers take.
pub(super) type Key<'k, 'v> = Option<(&'static Field, &'k At<'v>)>;

/// Collects problems while values are read.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) found: Vec<Found>,
    /// The pool that is being read.
    pub(super) pool: Option<usize>,
    /// Its type; `None` where it is unknown, then every key applies.
    pub(super) device_type: Option<DeviceType>,
    /// Inside `exclude`, a bad entry spoils the pool: left out alone, it would hand out what was to be kept back.
    pub(super) excluding: bool,
}

impl Reader {
    fn note(&mut self, severity: Severity, effect: Effect, path: &str, span: Range<usize>, message: String) {
        self.found.push(Found { severity, effect, json_path: path.to_owned(), span, message });
    }

    /// Whether an error was noted after the first `before` problems.
    pub(super) fn has_error_since(&self, before: usize) -> bool {
        self.found.iter().skip(before).any(|found| found.severity == Severity::Error)
    }

    /// An error that spoils the pool, or outside of pools the file.
    pub(super) fn error(&mut self, at: &At<'_>, message: String) {
        let effect = self.pool.map_or(Effect::File, Effect::Pool);
        self.note(Severity::Error, effect, &at.path, at.span(), message);
    }

    /// An error that spoils an entry of a list.
    pub(super) fn entry_error(&mut self, path: &str, span: Range<usize>, message: String) {
        let effect = match self.pool {
            Some(pool) if self.excluding => Effect::Pool(pool),
            _ => Effect::Entry,
        };
        self.note(Severity::Error, effect, path, span, message);
    }

    pub(super) fn warning(&mut self, at: &At<'_>, message: String) {
        self.warning_at(&at.path, at.span(), message);
    }

    pub(super) fn warning_at(&mut self, path: &str, span: Range<usize>, message: String) {
        self.note(Severity::Warning, Effect::None, path, span, message);
    }

    /// The value has another type than the field wants.
    fn mistyped(&mut self, field: &Field, at: &At<'_>) {
        let message = format!(
            "`{}` is {}; write {}, such as {}",
            field.name,
            described(at.value),
            wanted(field.kind),
            field.example
        );
        self.error(at, message);
    }

    /// The members of an object, duplicates and nulls included.
    pub(super) fn members<'v>(&mut self, object: &'v Object<'v>, at: &At<'v>) -> Vec<Member<'v>> {
        let member = |property: &'v jsonc_parser::ast::ObjectProp<'v>| {
            let key = property.name.as_str();
            Member {
                key,
                key_span: property.name.start()..property.name.end(),
                at: At { value: &property.value, path: at.member_path(key) },
            }
        };
        object.properties.iter().map(member).collect()
    }

    /// The known keys of an object. As in Go, keys match without regard to case and the last of several counts.
    pub(super) fn keys<'v>(&mut self, object: &'v Object<'v>, at: &At<'v>, level: Level) -> Keys<'v> {
        let mut keys: Vec<(&'static Field, At<'v>)> = Vec::new();
        for member in self.members(object, at) {
            let Member { key, key_span, .. } = member;
            let Some(field) = level.fields().find(|field| field.name.eq_ignore_ascii_case(key)) else {
                if !PASSED_OVER.iter().any(|name| name.eq_ignore_ascii_case(key)) {
                    let message = hint::unknown_key(key, level, object);
                    self.warning_at(&member.at.path, key_span, message);
                }
                continue;
            };
            let value = At { path: at.member_path(field.name), ..member.at };
            match keys.iter_mut().find(|(known, _)| known.name == field.name) {
                None => keys.push((field, value)),
                Some(earlier) => {
                    earlier.1 = value.clone();
                    self.repeated(key, &value.path, key_span);
                }
            }
        }
        keys.retain(|(_, at)| !is_null(at.value));
        Keys(keys)
    }

    pub(super) fn repeated(&mut self, key: &str, path: &str, key_span: Range<usize>) {
        let message =
            format!("`{key}` stands here more than once and the last one counts; remove the others");
        self.warning_at(path, key_span, message);
    }

    /// Leaves out the keys that the device type does not have.
    pub(super) fn applicable<'v>(&mut self, mut keys: Keys<'v>) -> Keys<'v> {
        keys.0.retain(|(field, at)| {
            let asks = !is_default(field, at.value);
            if let Some(device_type) = self.device_type
                && !field.applies.contains(&device_type)
                && asks
            {
                self.not_applicable(field, at, device_type);
                return false;
            }
            true
        });
        keys
    }

    fn not_applicable(&mut self, field: &Field, at: &At<'_>, device_type: DeviceType) {
        let types: Vec<&str> = field.applies.iter().map(|applies| applies.as_str()).collect();
        let types = types.join(" and ");
        let (name, device_type) = (field.name, device_type.as_str());
        match name {
            // A pool that was meant to be shared and is not would be a surprise at the wrong time.
            "replicas" => self.error(at, format!("`{name}` is for {types} pools only; remove it")),
            _ => self.warning(
                at,
                format!(
                    "`{name}` does nothing in a pool of the type {device_type}, only in {types}; remove it"
                ),
            ),
        }
    }

    pub(super) fn text<'v>(&mut self, key: Key<'_, 'v>) -> Option<(&'v str, At<'v>)> {
        let (field, at) = key?;
        let Some(text) = at.value.as_string_lit() else {
            self.mistyped(field, at);
            return None;
        };
        Some((&text.value, at.clone()))
    }

    pub(super) fn flag(&mut self, key: Key<'_, '_>) -> Option<bool> {
        let (field, at) = key?;
        let Some(flag) = at.value.as_boolean_lit() else {
            self.mistyped(field, at);
            return None;
        };
        Some(flag.value)
    }

    pub(super) fn count(&mut self, key: Key<'_, '_>) -> Option<u32> {
        let (field, at) = key?;
        let Kind::Count(least, most) = field.kind else {
            return None;
        };
        let Some(number) = at.value.as_number_lit() else {
            self.mistyped(field, at);
            return None;
        };
        let count = number.value.parse().ok().filter(|count| (least..=most).contains(count));
        if count.is_none() {
            self.error(
                at,
                format!("`{}` is out of range; write a whole number from {least} to {most}", field.name),
            );
        }
        count
    }

    pub(super) fn duration(&mut self, key: Key<'_, '_>) -> Option<Duration> {
        let (field, _) = key?;
        let (text, at) = self.text(key)?;
        let Kind::Duration(least, most) = field.kind else {
            return None;
        };
        let duration = entries::duration(text).filter(|length| (least..=most).contains(length));
        if duration.is_none() {
            let message = format!(
                "`{text}` is not a length of time from {}s to {}s; write a whole number and ms, s, m or h, such as {}",
                least.as_secs(),
                most.as_secs(),
                field.example
            );
            self.error(&at, message);
        }
        duration
    }

    /// A word; the empty one is no word, as in Go.
    pub(super) fn word<T: Words>(&mut self, key: Key<'_, '_>) -> Option<T> {
        let (text, at) = self.text(key)?;
        if text.is_empty() {
            return None;
        }
        T::parse(text).map_err(|message| self.error(&at, message)).ok()
    }

    /// A list of strings; `None` where nothing is asked for. A bad entry is noted and left out.
    pub(super) fn list<T, E: Display>(
        &mut self,
        key: Key<'_, '_>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let (field, at) = key?;
        let Some(array) = at.value.as_array() else {
            self.mistyped(field, at);
            return None;
        };
        let mut values = Vec::new();
        for (position, element) in array.elements.iter().enumerate() {
            let at = at.element(position, element);
            let text = match (element, field.kind) {
                (Value::StringLit(text), _) => &*text.value,
                (Value::NumberLit(number), Kind::List(Entry::Decimal)) => number.value,
                _ => {
                    let is = described(element);
                    let example = field.example;
                    let name = field.name;
                    self.error(
                        &at,
                        format!("an entry of `{name}` is {is}; write strings, such as {example}"),
                    );
                    continue;
                }
            };
            match parse(text) {
                Ok(value) => values.push(value),
                Err(error) => self.entry_error(&at.path, at.span(), error.to_string()),
            }
        }
        (!array.elements.is_empty()).then_some(values)
    }

    /// The object that a key holds.
    pub(super) fn object<'v>(&mut self, key: Key<'_, 'v>) -> Option<(&'v Object<'v>, At<'v>)> {
        let (field, at) = key?;
        let Some(object) = at.value.as_object() else {
            self.mistyped(field, at);
            return None;
        };
        Some((object, at.clone()))
    }

    /// The objects that a key holds, be it one or a list; `None` where it holds something else.
    pub(super) fn objects<'v>(&mut self, key: Key<'_, 'v>) -> Option<Vec<(Option<&'v Object<'v>>, At<'v>)>> {
        let (field, at) = key?;
        match (at.value, field.kind) {
            (Value::Object(object), Kind::ObjectOrObjects(_)) => Some(vec![(Some(object), at.clone())]),
            (Value::Array(array), _) => {
                let element = |(position, value): (usize, &'v Value<'v>)| {
                    (value.as_object(), at.element(position, value))
                };
                Some(array.elements.iter().enumerate().map(element).collect())
            }
            _ => {
                self.mistyped(field, at);
                None
            }
        }
    }

    /// An entry of a list of objects is something else.
    pub(super) fn not_an_object(&mut self, at: &At<'_>, example: &str) {
        let is = described(at.value);
        self.error(at, format!("this entry is {is}; write an object, such as {example}, or remove it"));
    }
}

pub(super) fn is_null(value: &Value<'_>) -> bool {
    value.as_null_keyword().is_some()
}

pub(super) fn described(value: &Value<'_>) -> &'static str {
    match value {
        Value::StringLit(_) => "a string",
        Value::NumberLit(_) => "a number",
        Value::BooleanLit(_) => "true or false",
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        Value::NullKeyword(_) => "null",
    }
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Text | Kind::Duration(..) | Kind::Word(_) => "a string",
        Kind::Flag => "true or false without quotes",
        Kind::Count(..) => "a whole number without quotes",
        Kind::List(_) => "a list of strings",
        Kind::Object(_) => "an object",
        Kind::ObjectOrObjects(_) => "an object or a list of objects",
        Kind::Objects(_) => "a list of objects",
        Kind::Information => "an object of objects of strings",
    }
}

/// Whether a value asks for nothing beyond what holds anyway.
fn is_default(field: &Field, value: &Value<'_>) -> bool {
    match value {
        Value::NullKeyword(_) => true,
        Value::Array(array) => array.elements.is_empty(),
        Value::Object(object) => object.properties.is_empty() && field.default == "{}",
        Value::BooleanLit(flag) => flag.value.to_string() == field.default,
        Value::NumberLit(number) => number.value == field.default,
        Value::StringLit(text) => {
            let default = field.default.trim_matches('"');
            let length = entries::duration(&text.value);
            text.value == default
                || text.value.is_empty()
                || length.is_some() && length == entries::duration(default)
        }
    }
}
