//! YAML for what people read in the repository: blocks, and quotes where a word could be read as something else.

use std::fmt::Write as _;

use serde_json::Value;

/// A document.
pub(super) fn document(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text
}

fn write(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, entry) in entries {
                let _ = write!(text, "{indent}{}:", scalar(key));
                after(text, entry, depth + 1);
            }
        }
        Value::Array(entries) if !entries.is_empty() => {
            for entry in entries {
                let mut inner = String::new();
                match entry {
                    Value::Object(object) if !object.is_empty() => write(&mut inner, entry, depth + 1),
                    Value::Array(list) if !list.is_empty() => write(&mut inner, entry, depth + 1),
                    _ => {
                        inner.push_str(&indent);
                        inner.push(' ');
                        after(&mut inner, entry, depth + 1);
                    }
                }
                // The dash takes the place of the first entry's indentation.
                let _ = write!(text, "{indent}- {}", inner.trim_start());
            }
        }
        other => {
            let _ = writeln!(text, "{indent}{}", flow(other));
        }
    }
}

/// What stands behind a colon or a dash.
fn after(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            text.push('\n');
            write(text, value, depth);
        }
        // A list may stand as deep as its key.
        Value::Array(entries) if !entries.is_empty() => {
            text.push('\n');
            write(text, value, depth - 1);
        }
        other => {
            let _ = writeln!(text, " {}", flow(other));
        }
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// A plain word where every reader takes it for text, else with the escapes of JSON, which are YAML's too.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " ._-/$".contains(c))
        && !text.ends_with(' ')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use saphyr::{LoadableYamlNode, Yaml};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_read_back_as_it_was() {
        let value = json!({
            "plain": "a word", "key: odd": "no", "empty": {}, "none": [], "text": "a\nb: #c", "null": "null", "n": -3,
            "list": [{"name": "a", "deep": {"list": ["x", 1, true]}}, "b", [1, 2], [], {}],
        });
        let text = document(&value);
        insta::assert_snapshot!(text);
        let read = Yaml::load_from_str(&text).unwrap();
        let json = Yaml::load_from_str(&value.to_string()).unwrap();
        assert_eq!(read, json);
    }
}
