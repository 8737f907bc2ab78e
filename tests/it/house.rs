//! The floors of the house.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules by floor; a module may import from its own floor or from below.
const FLOORS: [&[&str]; 5] = [
    &["model"],
    &["config", "select", "pool", "handout"],
    &["host", "kubelet"],
    &["daemon", "operator", "observe"],
    &["cli"],
];
/// These two never import from each other.
const STRANGERS: [&str; 2] = ["host", "kubelet"];

fn floor(module: &str) -> usize {
    FLOORS
        .iter()
        .position(|floor| floor.contains(&module))
        .unwrap_or_else(|| panic!("module `{module}` has no floor; add it to FLOORS"))
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}

#[test]
fn imports_go_downward_and_host_and_kubelet_never_meet() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut imports = 0;
    let mut wrong = Vec::new();
    for path in files {
        let relative = path.strip_prefix(&root).unwrap().to_owned();
        let module = relative.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        if module == "lib.rs" || module == "main.rs" || module == "bin" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            for after in line.split("crate::").skip(1) {
                let target: String =
                    after.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                if target.is_empty() {
                    continue;
                }
                imports += 1;
                let strangers =
                    target != module && [&target, &module].iter().all(|m| STRANGERS.contains(&m.as_str()));
                if floor(&target) > floor(&module) || strangers {
                    wrong.push(format!("src/{}:{}: {}", relative.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(imports > 50, "only {imports} imports were found: is the search broken?");
    assert!(wrong.is_empty(), "imports that go up or sideways:\n{}", wrong.join("\n"));
}

#[test]
fn no_source_file_is_longer_than_600_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for directory in ["src", "tests", "benches"].map(|name| root.join(name)) {
        if directory.is_dir() {
            sources(&directory, &mut files);
        }
    }
    let long: Vec<_> = files
        .iter()
        .filter(|path| !path.components().any(|part| part.as_os_str() == "gen"))
        .filter(|path| fs::read_to_string(path).unwrap().lines().count() > 600)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

/// Licences that may be linked into an Apache-2.0 program.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

#[test]
fn every_dependency_is_permissive_and_from_the_registry() {
    // What only other platforms need is not there after a build, and is not asked for here.
    let version = std::process::Command::new(env!("CARGO")).arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--all-features"])
        .args(["--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50);
    for package in packages {
        let name = &package["name"];
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} states no licence"));
        // `A OR B` is a choice, `A/B` an old form of it; every part of `A AND B` counts.
        let permissive = |choice: &str| {
            choice.split(" AND ").all(|part| LICENCES.contains(&part.trim_matches(['(', ')', ' '])))
        };
        assert!(
            licence.split(" OR ").flat_map(|choice| choice.split('/')).any(permissive),
            "{name}: {licence}"
        );
        let source = package["source"].as_str().unwrap_or_default();
        assert!(!source.starts_with("git+"), "{name} comes from {source}");
    }
}
