//! Supplied packages, installed by the node's own package manager, which also resolves what they need.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::DriverError;
use super::node::{Node, PACKAGES_DIRECTORY};
use super::programs::ProgramError;
use crate::model::{stable_hash, stable_hash_on};

/// Where dnf and yum keep repositories.
const REPOSITORIES: &str = "/etc/yum.repos.d";
/// What `rpm` is asked to print of a file: its name, and what it is in full.
const FORMAT: &str = "%{NAME} %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\\n";

/// Packages that were supplied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Payload {
    directory: PathBuf,
    files: Vec<String>,
    hash: String,
}

/// One package.
struct Package {
    file: String,
    name: String,
    full: String,
}

impl Payload {
    /// The packages in a directory; one that is not there holds none.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub(super) fn read(directory: &Path) -> Result<Self, DriverError> {
        let unreadable = |source| DriverError::Read { path: directory.to_owned(), source };
        let mut files = BTreeSet::new();
        match fs::read_dir(directory) {
            Ok(entries) => {
                for entry in entries {
                    let name = entry.map_err(unreadable)?.file_name();
                    files.extend(name.to_str().filter(|name| name.ends_with(".rpm")).map(str::to_owned));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(unreadable(source)),
        }
        let mut hash = stable_hash("");
        for file in &files {
            let path = directory.join(file);
            let content = fs::read(&path).map_err(|source| DriverError::Read { path, source })?;
            hash = stable_hash_on(stable_hash_on(hash, file.as_bytes()), &content);
        }
        Ok(Self {
            directory: directory.to_owned(),
            files: files.into_iter().collect(),
            hash: format!("{hash:016x}"),
        })
    }

    /// Whether there is nothing to install.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// File names.
    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    /// The same for the same packages.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// Installs the packages. `new` tells which were not there before, also where an error ends this.
    ///
    /// # Errors
    /// What the package manager said; a repository that is to blame is named.
    pub(super) fn install(&self, node: &Node, new: &mut Vec<String>) -> Result<(), DriverError> {
        let outcome = self.copy(node).and_then(|()| self.install_copies(node, new));
        // What is left would only take room in memory.
        let _ = fs::remove_dir_all(node.place(PACKAGES_DIRECTORY));
        outcome
    }

    /// The package manager runs in the node's root, where the directories of this pod are not.
    fn copy(&self, node: &Node) -> Result<(), DriverError> {
        let target = node.place(PACKAGES_DIRECTORY);
        fs::create_dir_all(&target)
            .and_then(|()| {
                self.files
                    .iter()
                    .try_for_each(|file| fs::copy(self.directory.join(file), target.join(file)).map(|_| ()))
            })
            .map_err(|source| DriverError::Write { path: target.clone(), source })
    }

    fn install_copies(&self, node: &Node, new: &mut Vec<String>) -> Result<(), DriverError> {
        let mut packages = Vec::new();
        for file in &self.files {
            let file = format!("{PACKAGES_DIRECTORY}/{file}");
            let said = node.programs().run("rpm", &["-qp", "--queryformat", FORMAT, &file])?;
            let (name, full) = said.trim().split_once(' ').unwrap_or((said.trim(), said.trim()));
            packages.push(Package { name: name.to_owned(), full: full.to_owned(), file });
        }
        let is_there = |what: &str| is_installed(node, what);
        // Installing what is there in the same version does nothing, and a kernel that was updated since needs it done.
        let (same, other): (Vec<_>, Vec<_>) = packages.iter().partition(|package| is_there(&package.full));
        new.extend(
            other.iter().filter(|package| !is_there(&package.name)).map(|package| package.name.clone()),
        );
        manage(node, "install", &other)?;
        manage(node, "reinstall", &same)?;
        // An older version in the place of a newer one is not installed but for being asked for.
        let older: Vec<_> = other.into_iter().filter(|package| !is_there(&package.full)).collect();
        manage(node, "downgrade", &older)?;
        let missing: Vec<_> =
            older.iter().filter(|package| !is_there(&package.full)).map(|package| &*package.full).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(DriverError::NotInstalled { packages: missing.join(", ") }),
        }
    }
}

/// Whether the node has a package, by its name or its full name.
pub(super) fn is_installed(node: &Node, what: &str) -> bool {
    node.programs().run("rpm", &["-q", what]).is_ok()
}

/// Removes packages, those that are there.
///
/// # Errors
/// What the package manager said.
pub(super) fn remove(node: &Node, names: &[String]) -> Result<Vec<String>, DriverError> {
    let there: Vec<String> = names.iter().filter(|name| is_installed(node, name)).cloned().collect();
    if !there.is_empty() {
        let mut arguments = vec!["remove", "-y"];
        arguments.extend(there.iter().map(String::as_str));
        node.programs().run(manager(node)?, &arguments)?;
    }
    Ok(there)
}

fn manager(node: &Node) -> Result<&'static str, ProgramError> {
    let names = ["dnf", "yum"];
    names.into_iter().find(|name| node.programs().has(name)).ok_or(ProgramError::Absent {
        names: names.to_vec(),
        remedy: "packages can be installed on nodes with dnf or yum only; elsewhere install the driver yourself and leave --packages empty",
    })
}

fn manage(node: &Node, verb: &str, packages: &[&Package]) -> Result<(), DriverError> {
    if packages.is_empty() {
        return Ok(());
    }
    let mut arguments = vec![verb, "-y"];
    arguments.extend(packages.iter().map(|package| package.file.as_str()));
    match node.programs().run(manager(node)?, &arguments) {
        Ok(_) => Ok(()),
        Err(ProgramError::Failed { command, status, output }) => {
            let repository = blamed_repository(&output, &enabled_repositories(node));
            let source = ProgramError::Failed { command, status, output };
            Err(match repository {
                Some(repository) => DriverError::Repository { repository, source },
                None => source.into(),
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// The repository that a failure is about, in the words of dnf 4 and yum 3 (messages in
/// <https://github.com/rpm-software-management/dnf/blob/master/dnf/base.py> and
/// <https://github.com/rpm-software-management/librepo/blob/master/librepo/downloader.c>).
fn blamed_repository(output: &str, enabled: &[String]) -> Option<String> {
    for words in ["for repo '", "for repository '", "repository '", "repository: ", "repo: ", "repoid: "] {
        let Some((_, rest)) = output.split_once(words) else { continue };
        let end = if words.ends_with('\'') { '\'' } else { ' ' };
        let name = rest.split([end, ';', ':']).next().unwrap_or_default().trim();
        if !name.is_empty() {
            return Some(name.to_owned());
        }
    }
    let about =
        ["no enabled repo", "Unable to find a match", "nothing provides", "Cannot download", "Curl error"];
    let is_about_repositories = about.iter().any(|words| output.contains(words));
    is_about_repositories.then(|| match enabled.is_empty() {
        true => format!("(none is enabled in {REPOSITORIES})"),
        false => enabled.join(", "),
    })
}

/// Ids of enabled repositories.
fn enabled_repositories(node: &Node) -> Vec<String> {
    let mut enabled = Vec::new();
    for name in node.host().list(REPOSITORIES).unwrap_or_default() {
        if !name.ends_with(".repo") {
            continue;
        }
        let Ok(Some(text)) = node.file(&format!("{REPOSITORIES}/{name}")) else { continue };
        for line in text.lines().map(str::trim) {
            if let Some(id) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                enabled.push(id.to_owned());
            } else if line.replace(' ', "") == "enabled=0" {
                enabled.pop();
            }
        }
    }
    enabled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_to_blame_is_named() {
        let enabled = ["OS".to_owned(), "update".to_owned()];
        for (output, expected) in [
            ("Error: Failed to download metadata for repo 'OS': Cannot download repomd.xml", Some("OS")),
            ("Cannot retrieve metalink for repository: x; Please verify its path", Some("x")),
            (
                "failure: repodata/repomd.xml from everything: no more mirrors; repo: everything",
                Some("everything"),
            ),
            ("Problem: nothing provides kernel-devel = 5.10.0 needed by kae_driver", Some("OS, update")),
            ("There are no enabled repositories in \"/etc/yum.repos.d\".", Some("OS, update")),
            ("Error: Transaction test error: disk full", None),
        ] {
            assert_eq!(blamed_repository(output, &enabled).as_deref(), expected, "{output}");
        }
        let none = blamed_repository("Error: There are no enabled repositories", &[]).unwrap();
        assert_eq!(none, "(none is enabled in /etc/yum.repos.d)");
    }
}
