//! The README's commands do what it shows.

use std::fs;
use std::path::Path;

use assert_cmd::Command;

/// Commands and what they are shown to print; `...` stands for any lines.
fn transcripts(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            line if inside => match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), Vec::new())),
                (None, Some((_, shown))) => shown.push(line.to_owned()),
                (None, None) => panic!("a block that does not begin with a command: {line}"),
            },
            _ => {}
        }
    }
    found
}

/// Whether `lines` are what is shown.
fn fits(shown: &[String], lines: &[&str]) -> bool {
    match (shown.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "..." => {
            (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..]))
        }
        (Some((first, rest)), Some((line, others))) => first == line && fits(rest, others),
        _ => false,
    }
}

#[test]
fn every_command_of_the_readme_prints_what_it_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let transcripts = transcripts(&fs::read_to_string(root.join("README.md")).unwrap());
    assert!(!transcripts.is_empty());
    for (command, shown) in transcripts {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "pcidp", "{command}");
        let output =
            Command::new(env!("CARGO_BIN_EXE_pcidp")).current_dir(root).args(&words[1..]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(fits(&shown, &lines), "`{command}` prints:\n{text}\nthe README shows:\n{}", shown.join("\n"));
    }
}

#[test]
fn every_file_that_the_readme_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("README.md")).unwrap();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = text.split('`').filter(|word| {
        ["src/", "testdata/", "examples/", "benches/", "deployments/", "tests/"]
            .iter()
            .any(|d| word.starts_with(d))
            && !word.contains([' ', '<', '*'])
    });
    for path in links.filter(|link| !link.starts_with('#') && !link.contains("://")).chain(named) {
        assert!(root.join(path).exists(), "README.md names {path}");
    }
}
