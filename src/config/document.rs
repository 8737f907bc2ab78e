//! What the field table says, for editors and for people.

use serde_json::{Map, Value, json};

use super::fields::{Entry, Field, Kind, Level};

/// The JSON Schema (2020-12) of a config file. Editors know the documented spelling of keys only; [`super::check`] takes
/// every case.
pub fn schema() -> Value {
    let definitions: Map<String, Value> = [Level::Pool, Level::Selector, Level::Health, Level::WaitFor]
        .into_iter()
        .map(|level| (definition(level).to_owned(), object(level)))
        .collect();
    let mut schema = object(Level::File);
    if let Some(members) = schema.as_object_mut() {
        members.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        members.insert("title".to_owned(), "pcidp config".into());
        members.insert("$defs".to_owned(), definitions.into());
        if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("$schema".to_owned(), json!({"type": "string"}));
        }
    }
    schema
}

fn definition(level: Level) -> &'static str {
    match level {
        Level::File => "file",
        Level::Pool => "pool",
        Level::Selector => "selector",
        Level::Health => "health",
        Level::WaitFor => "waitFor",
    }
}

fn object(level: Level) -> Value {
    let properties: Map<String, Value> =
        level.fields().map(|field| (field.name.to_owned(), property(field))).collect();
    let required: Vec<&str> = match level {
        Level::Pool => vec!["resourceName"],
        Level::WaitFor => vec!["devices"],
        Level::File | Level::Selector | Level::Health => Vec::new(),
    };
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn property(field: &Field) -> Value {
    let mut schema = match field.kind {
        Kind::Text => json!({"type": ["string", "null"]}),
        Kind::Flag => json!({"type": ["boolean", "null"]}),
        Kind::Count(least, most) => json!({"type": ["integer", "null"], "minimum": least, "maximum": most}),
        Kind::Duration(..) => json!({"type": ["string", "null"], "pattern": "^[0-9]+(ms|s|m|h)$"}),
        Kind::Word(words) => {
            let words: Vec<Value> = words().into_iter().map(Value::from).chain([Value::Null]).collect();
            json!({"enum": words})
        }
        Kind::List(entry) => json!({"type": ["array", "null"], "items": item(entry)}),
        Kind::Object(level) => json!({"anyOf": [reference(level), {"type": "null"}]}),
        Kind::ObjectOrObjects(level) => json!({
            "anyOf": [reference(level), {"type": "array", "items": reference(level)}, {"type": "null"}]
        }),
        Kind::Objects(level) => json!({"type": ["array", "null"], "items": reference(level)}),
        Kind::Information => json!({
            "type": ["object", "null"],
            "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}}
        }),
    };
    if let Some(members) = schema.as_object_mut() {
        members.insert("description".to_owned(), explanation(field).into());
        if let Ok(default) = serde_json::from_str::<Value>(field.default)
            && !default.is_null()
        {
            members.insert("default".to_owned(), default);
        }
    }
    schema
}

fn reference(level: Level) -> Value {
    json!({"$ref": format!("#/$defs/{}", definition(level))})
}

fn item(entry: Entry) -> Value {
    let pattern = match entry {
        Entry::Text | Entry::DeviceId | Entry::PfName => return json!({"type": "string"}),
        Entry::Word(words) => return json!({"enum": words()}),
        Entry::Decimal => return json!({"type": ["string", "integer"], "pattern": "^[0-9]+$"}),
        Entry::HexId => "^(0[xX])?[0-9a-fA-F]{1,4}$",
        Entry::Class => "^(0[xX])?[0-9a-fA-F]{2,6}$",
        Entry::Address => "^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\\.[0-7]$",
        Entry::RootDevice => "^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\\.[0-7](#[0-9, -]+)?$",
        Entry::Ranges => "^[0-9, -]+$",
    };
    json!({"type": "string", "pattern": pattern})
}

/// The meaning of a field, and what else its reader must know.
fn explanation(field: &Field) -> String {
    let mut text = field.meaning.to_owned();
    if field.applies.len() < 3 {
        let types: Vec<&str> = field.applies.iter().map(|applies| applies.as_str()).collect();
        text.push_str(&format!(" Only for {}.", types.join(" and ")));
    }
    if let Kind::Word(words) | Kind::List(Entry::Word(words)) = field.kind {
        text.push_str(&format!(" One of {}.", words().join(", ")));
    }
    text
}

/// A whole config in which every key stands with its default and its meaning.
pub fn default_config() -> String {
    let mut text = String::new();
    write_object(&mut text, Level::File, 0);
    text.push('\n');
    text
}

/// Where a default would not do: a pool needs a name, and devices on vfio-pci were bound to it on purpose.
const STARTING_VALUES: [&str; 2] = ["resourceName", "drivers"];

fn write_object(text: &mut String, level: Level, depth: usize) {
    let indent = "  ".repeat(depth + 1);
    text.push_str("{\n");
    let mut fields = level.fields().peekable();
    while let Some(field) = fields.next() {
        text.push_str(&format!("{indent}// {}", explanation(field)));
        if !STARTING_VALUES.contains(&field.name) && matches!(field.default, "null" | "[]" | "{}") {
            text.push_str(&format!(" Such as {}", field.example));
        }
        text.push_str(&format!("\n{indent}\"{}\": ", field.name));
        match field.kind {
            Kind::Objects(level) => {
                text.push_str(&format!("[\n{indent}  "));
                write_object(text, level, depth + 2);
                text.push_str(&format!("\n{indent}]"));
            }
            Kind::ObjectOrObjects(level) => write_object(text, level, depth + 1),
            Kind::Object(level) if field.default == "{}" => write_object(text, level, depth + 1),
            _ if STARTING_VALUES.contains(&field.name) => text.push_str(field.example),
            _ => text.push_str(field.default),
        }
        text.push_str(if fields.peek().is_some() { ",\n" } else { "\n" });
    }
    text.push_str(&"  ".repeat(depth));
    text.push('}');
}
