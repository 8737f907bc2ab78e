//! Properties that hold for every text.

use proptest::prelude::*;

use super::{checked, rendered};

const SEEDS: [&str; 4] = [
    include_str!("../../../testdata/config/good/reference-sample.json"),
    include_str!("../../../testdata/config/good/kae.json"),
    include_str!("../../../testdata/config/good/additional-info.json"),
    include_str!("../../../testdata/config/good/every-spelling-of-a-pf.json"),
];

/// Checks and shows everything; whatever panics fails the test.
fn survives(text: &str) {
    let checked = checked(text);
    let _ = rendered(&checked, text);
    if !checked.has_config() {
        assert!(checked.config.pools.is_empty());
    }
    for refused in &checked.config.refused {
        assert!(!refused.reason.is_empty(), "{text}");
    }
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "true",
        "7",
        "\"\"",
        "\"*\"",
        "\"resourceList\"",
        "\"resourceName\"",
        "\"selectors\"",
        "\"vendors\"",
        "\"8086\"",
        "\"additionalInfo\"",
        "\"exclude\"",
        "\"pfNames\"",
        "\"re:a#1\"",
        "\"deviceType\"",
        "\"accelerator\"",
        "\"waitFor\"",
        "//",
        "/*",
        "*/",
        "\n",
        "ä",
        "\\",
    ])
    .prop_map(str::to_owned)
}

/// A valid selector object.
fn selector() -> impl Strategy<Value = serde_json::Value> {
    let hex = || prop::collection::vec("(0x)?[0-9a-fA-F]{4}", 1..4);
    let names = prop::collection::vec("[a-z]{2,4}[0-9](#[0-9])?", 1..4);
    let addresses = prop::collection::vec("0000:[0-9a-f]{2}:[01][0-9a-f]\\.[0-7]", 1..4);
    (hex(), hex(), names, addresses, any::<bool>()).prop_map(|(vendors, devices, names, addresses, rdma)| {
        serde_json::json!({"vendors": vendors, "devices": devices, "pfNames": names, "pciAddresses": addresses,
            "isRdma": rdma, "exclude": {"drivers": ["vfio-pci"]}})
    })
}

fn config() -> impl Strategy<Value = serde_json::Value> {
    prop::collection::vec(prop::collection::vec(selector(), 1..3), 0..5).prop_map(|pools| {
        let pool = |(position, selectors)| {
            serde_json::json!({"resourceName": format!("pool{position}"), "selectors": selectors,
                "additionalInfo": {"*": {"key": "value"}}})
        };
        serde_json::json!({"resourceList": pools.into_iter().enumerate().map(pool).collect::<Vec<_>>()})
    })
}

/// The same text with the case of the letters of its known keys drawn anew.
fn recased(text: &str, draw: &[bool]) -> String {
    let mut text = text.to_owned();
    let mut draw = draw.iter().cycle();
    for field in crate::config::fields::FIELDS {
        let quoted = format!("\"{}\":", field.name);
        let folded: String = quoted
            .chars()
            .map(|c| if *draw.next().unwrap() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
            .collect();
        text = text.replace(&quoted, &folded);
    }
    text
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,80}") {
        survives(&text);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_heap_of_words_makes_it_panic(words in prop::collection::vec(word(), 0..40)) {
        survives(&words.concat());
    }

    #[test]
    fn no_change_to_a_good_config_makes_it_panic(
        seed in prop::sample::select(SEEDS.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, word()), 1..4),
    ) {
        let mut text = seed.to_owned();
        for (at, drop, insert) in changes {
            let boundary = |mut at: usize| {
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                at
            };
            let start = boundary(at.index(text.len() + 1));
            let end = boundary((start + drop).min(text.len())).max(start);
            text.replace_range(start..end, &insert);
        }
        survives(&text);
    }

    #[test]
    fn a_valid_config_has_no_errors(config in config()) {
        let text = serde_json::to_string_pretty(&config).unwrap();
        let checked = checked(&text);
        prop_assert!(checked.problems.is_empty(), "{}", rendered(&checked, &text));
    }

    #[test]
    fn the_case_of_keys_does_not_matter(config in config(), draw in prop::collection::vec(any::<bool>(), 7..60)) {
        let text = config.to_string();
        let folded = recased(&text, &draw);
        prop_assert_eq!(format!("{:?}", checked(&text).config), format!("{:?}", checked(&folded).config));
    }
}
