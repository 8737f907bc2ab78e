//! What the writer of an unknown key or word may have meant.

use jsonc_parser::ast::{Object, Value};

use super::fields::{FIELDS, Level};

/// The candidate that looks most like `text`, if any does.
pub(super) fn closest<'c>(text: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    // Similar enough for a slip of the pen (`pciAddress`, `vendor`), too far for another word.
    const ALIKE: f64 = 0.87;
    let folded = text.to_ascii_lowercase();
    // The measure is quadratic, and no key is so long.
    if folded.len() > 64 {
        return None;
    }
    candidates
        .map(|name| (strsim::jaro_winkler(&folded, &name.to_ascii_lowercase()), name))
        .filter(|&(alike, _)| alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// What is said about an unknown key of an object.
pub(super) fn unknown_key(key: &str, level: Level, object: &Object<'_>) -> String {
    if key.eq_ignore_ascii_case("sriovMode") {
        return format!(
            "`{key}` belongs to an old config format and does nothing; the form of today is {}",
            new_form(object, None)
        );
    }
    if let Some(field) = FIELDS.iter().find(|field| field.name.eq_ignore_ascii_case(key)) {
        return format!("`{key}` does nothing here; write it {}", field.level.place());
    }
    if let Some(name) = closest(key, level.fields().map(|field| field.name)) {
        return format!("`{key}` is unknown and does nothing; did you mean `{name}`?");
    }
    let names = FIELDS.iter().map(|field| field.name);
    match closest(key, names).and_then(|name| FIELDS.iter().find(|field| field.name == name)) {
        Some(field) => format!(
            "`{key}` is unknown and does nothing; did you mean `{}`, {}?",
            field.name,
            field.level.place()
        ),
        None => format!("`{key}` is unknown and does nothing; remove it"),
    }
}

/// What is said about a `deviceType` of the formats before version 3, in the words of the entry it stands in.
pub(super) fn old_device_type(word: &str, pool: &Object<'_>) -> Option<String> {
    let drivers = match word {
        "vfio" => r#"["vfio-pci"]"#,
        "uio" => r#"["igb_uio", "uio_pci_generic"]"#,
        _ => return None,
    };
    Some(format!(
        "`{word}` is a device type of an old config format; leave `deviceType` out and write {}",
        new_form(pool, Some(drivers))
    ))
}

fn new_form(object: &Object<'_>, drivers: Option<&str>) -> String {
    let addresses: Vec<String> = object
        .properties
        .iter()
        // An entry has a dozen keys; one with thousands must not be searched for each of them.
        .take(64)
        .filter(|property| property.name.as_str().eq_ignore_ascii_case("rootDevices"))
        .filter_map(|property| property.value.as_array())
        .flat_map(|array| &array.elements)
        .filter_map(Value::as_string_lit)
        .map(|text| format!("{:?}", text.value))
        .collect();
    let addresses = match addresses.is_empty() {
        true => r#""0000:3b:00.0""#.to_owned(),
        false => addresses.join(", "),
    };
    let drivers = drivers.map_or_else(String::new, |drivers| format!(r#", "drivers": {drivers}"#));
    format!(r#""selectors": {{"rootDevices": [{addresses}]{drivers}}}"#)
}
