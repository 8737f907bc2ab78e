//! What single strings of a config stand for.

use std::fmt::Display;
use std::time::Duration;

use regex_lite::RegexBuilder;

use super::types::{NamePattern, PfName, RootDevice};
use crate::model::{DeviceId, HexId, IndexRanges, PciAddress};

/// `500ms`, `5s`, `10m`, `1h`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(milliseconds).map(Duration::from_millis)
}

/// A partition key is a hex number of four digits, as an id is.
pub(super) fn partition_key(text: &str) -> Result<u16, String> {
    let number: Result<HexId, _> = text.parse();
    number
        .map(|number| number.0)
        .map_err(|_| format!("`{text}` is not a partition key; write up to four hex digits, such as 0x8001"))
}

/// A firmware index.
pub(super) fn acpi_index(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| format!("`{text}` is not an ACPI index; write a decimal number, such as 101"))
}

/// A PCI address in any spelling, or an auxiliary name.
pub(super) fn device_id(text: &str) -> Result<DeviceId, String> {
    if let Ok(address) = text.parse::<PciAddress>() {
        return Ok(address.into());
    }
    let parts: Vec<&str> = text.split('.').collect();
    let auxiliary = match parts.as_slice() {
        [driver, kind, id] => {
            let word = |part: &str| {
                !part.is_empty()
                    && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            };
            word(driver) && word(kind) && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    let refuse = || {
        format!(
            "`{text}` is not a device id; write a PCI address such as 0000:3b:00.1, or an auxiliary name such as \
             mlx5_core.sf.4"
        )
    };
    auxiliary.then(|| DeviceId::from(text)).ok_or_else(refuse)
}

/// An entry of `pfNames`.
pub(super) fn pf_name(text: &str) -> Result<PfName, String> {
    if let Some(pattern) = text.strip_prefix("re:") {
        // A pattern may hold a `#` of its own: the last one opens indices only if they look like some.
        let (pattern, indexes) = match pattern.rsplit_once('#') {
            Some((pattern, tail)) if looks_like_ranges(tail) => (pattern, Some(ranges(text, tail)?)),
            _ => (pattern, None),
        };
        if pattern.is_empty() {
            return Err(format!("`{text}` has no pattern; write one after re:, such as re:^ens1f0$"));
        }
        let regex = RegexBuilder::new(pattern).case_insensitive(true).build();
        let regex = regex.map_err(|error| {
            format!("`{text}` is not a regular expression: {error}; see the regex crate's syntax")
        })?;
        return Ok(PfName { name: NamePattern::Regex(regex), indexes });
    }
    let (name, indexes) = with_indexes(text)?;
    if name.trim().is_empty() {
        return Err(format!("`{text}` has no PF name; write a name such as ens1f0 or ens1f0#0-3"));
    }
    Ok(PfName { name: NamePattern::Exact(name.to_owned()), indexes })
}

/// An entry of `rootDevices`.
pub(super) fn root_device(text: &str) -> Result<RootDevice, String> {
    let (address, indexes) = with_indexes(text)?;
    let address = address.parse().map_err(|error: crate::model::ParseAddressError| error.to_string())?;
    Ok(RootDevice { address, indexes })
}

fn with_indexes(text: &str) -> Result<(&str, Option<IndexRanges>), String> {
    match text.split_once('#') {
        None => Ok((text, None)),
        Some((_, tail)) if tail.contains('#') => {
            Err(format!("`{text}` has more than one #; write all indices after one, such as p0#0,2-7"))
        }
        Some((name, tail)) => Ok((name, Some(ranges(text, tail)?))),
    }
}

fn looks_like_ranges(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '-' | ' '))
}

fn ranges(whole: &str, tail: &str) -> Result<IndexRanges, String> {
    tail.parse().map_err(|error: crate::model::ParseRangesError| in_whole(whole, error))
}

fn in_whole(whole: &str, error: impl Display) -> String {
    format!("in `{whole}`, {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_one_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("10m"), Some(Duration::from_secs(600)));
        assert_eq!(duration("1h"), Some(Duration::from_secs(3600)));
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "+5s",
            "1.5s",
            "5 s",
            "5S",
            "1h30m",
            "99999999999999999999s",
            "9999999999999999999h",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_pf_name_carries_its_indices() {
        let entry = pf_name("p0#0,2-3").unwrap();
        assert!(entry.name.matches("P0") && !entry.name.matches("p01"));
        assert!(entry.indexes.unwrap().contains(3));
        for text in ["", "#1", "p0#", "p0#0-", "p0#7-3", "a#1#2", "p0#x", "re:", "re:(", "re:p#7-3"] {
            assert!(pf_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_is_unanchored_and_blind_to_case() {
        let entry = pf_name(r"re:ens\d+f0#1-2").unwrap();
        assert!(entry.name.matches("xENS12F0np0"));
        assert!(entry.indexes.unwrap().contains(2));
        let entry = pf_name("re:^a#b$").unwrap();
        assert!(entry.indexes.is_none() && entry.name.matches("a#b"));
    }

    #[test]
    fn a_device_id_is_an_address_or_an_auxiliary_name() {
        assert_eq!(device_id("3B:00.1").unwrap().as_str(), "0000:3b:00.1");
        assert_eq!(device_id("mlx5_core.sf.7").unwrap().as_str(), "mlx5_core.sf.7");
        for text in ["", "*", "eth0", "a.b", "a.b.c", "..7", "3b:00"] {
            assert!(device_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn partition_keys_are_hex_and_acpi_indexes_decimal() {
        for text in ["0x8001", "8001", "0X8001"] {
            assert_eq!(partition_key(text), Ok(0x8001));
        }
        assert!(partition_key("0x18001").is_err());
        assert_eq!(acpi_index("101"), Ok(101));
        for text in ["", "0x1", "-1", "+1", "4294967296"] {
            assert!(acpi_index(text).is_err(), "{text}");
        }
    }
}
