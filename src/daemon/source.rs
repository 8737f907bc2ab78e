//! Where the config comes from, and when it is another one.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::config::{self, Checked, Config, Problem, Severity};

/// How often the file is read where the kernel does not tell of changes.
const QUICK_LOOK: Duration = Duration::from_secs(5);
/// How often it is read all the same where it does.
const SLOW_LOOK: Duration = Duration::from_secs(60);

/// A file, or a directory with a file for each node.
#[derive(Debug, Clone)]
pub enum Place {
    /// One file.
    File(PathBuf),
    /// `<node>.json`, else `<node>`, else `default.json` in a directory.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The node.
        node: String,
    },
}

/// Where the config comes from.
#[derive(Debug, Clone)]
pub struct ConfigSource {
    /// The file, or the directory with a file for each node.
    pub place: Place,
    /// Prefix of resources that name none of their own.
    pub prefix: String,
}

/// A config that was read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file as it was found; nothing where a directory has none for this node.
    pub path: Option<PathBuf>,
    /// Its text.
    pub text: String,
    /// What is in it.
    pub checked: Checked,
}

impl Loaded {
    /// The path for people.
    pub fn shown(&self) -> String {
        self.path.as_deref().map(|path| path.display().to_string()).unwrap_or_default()
    }

    /// Every problem as the user reads it, an empty line between two.
    pub fn problems(&self) -> String {
        let path = self.shown();
        let rendered = self.checked.problems.iter().map(|problem| problem.render(&path, &self.text));
        rendered.collect::<Vec<_>>().join("\n")
    }

    /// Every problem on a line with its place, as compilers write them.
    pub fn problem_lines(&self) -> Vec<String> {
        let path = self.shown();
        let line = |problem: &Problem| {
            let severity = match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            format!("{path}:{}:{}: {severity}: {}", problem.line, problem.column, problem.message)
        };
        self.checked.problems.iter().map(line).collect()
    }

    /// Logs every problem, and every pool that is not served.
    pub fn tell(&self) {
        let path = self.shown();
        for problem in &self.checked.problems {
            let place = format!("{path}:{}:{}", problem.line, problem.column);
            match problem.severity {
                Severity::Error => tracing::error!(place, path = problem.json_path, "{}", problem.message),
                Severity::Warning => tracing::warn!(place, path = problem.json_path, "{}", problem.message),
            }
        }
        for refused in &self.checked.config.refused {
            let fallback = format!("resourceList[{}]", refused.position);
            let resource = refused.resource.as_ref().unwrap_or(&fallback);
            tracing::error!(resource, reason = refused.reason, "pool not served");
        }
        if self.checked.config.pools.is_empty() {
            tracing::warn!("the config has no pool that can be served");
        }
    }
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read.
    #[error("{}: {source}; name a config with --config-file, or mount one there", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no config at all.
    #[error("{0}")]
    Unusable(String),
}

impl ConfigSource {
    /// Reads and checks the config as it is now.
    ///
    /// # Errors
    /// When it cannot be read, or is no config as a whole. A directory without a file for the node is an empty config.
    pub fn load(&self) -> Result<Loaded, SourceError> {
        let (path, text) = self.read()?;
        self.check(path, text)
    }

    /// The same; nothing where the text is this one.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_other(&self, known: &str) -> Result<Option<Loaded>, SourceError> {
        match self.read()? {
            (_, text) if text == known => Ok(None),
            (path, text) => self.check(path, text).map(Some),
        }
    }

    fn read(&self) -> Result<(Option<PathBuf>, String), SourceError> {
        let Some(path) = self.file() else { return Ok((None, String::new())) };
        match std::fs::read(&path) {
            Ok(text) => Ok((Some(path), String::from_utf8_lossy(&text).into_owned())),
            Err(source) => Err(SourceError::Read { path, source }),
        }
    }

    fn check(&self, path: Option<PathBuf>, text: String) -> Result<Loaded, SourceError> {
        let Some(shown) = path.as_deref().map(|path| path.display().to_string()) else {
            return Ok(Loaded { path, text, checked: Checked::default() });
        };
        let checked = config::check(&text, &config::Options { default_prefix: &self.prefix, path: &shown });
        let loaded = Loaded { path, text, checked };
        match loaded.checked.has_config() {
            true => Ok(loaded),
            false => Err(SourceError::Unusable(loaded.problems())),
        }
    }

    /// The names whose change may be another config. An update of a ConfigMap is a rename of the link `..data`
    /// (<https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/volume/util/atomic_writer.go>).
    fn names(&self) -> Vec<OsString> {
        let mut names = vec![OsString::from("..data")];
        match &self.place {
            Place::File(path) => names.extend(path.file_name().map(ToOwned::to_owned)),
            Place::Directory { node, .. } => {
                names.extend([format!("{node}.json").into(), node.into(), "default.json".into()]);
            }
        }
        names
    }

    /// The file that counts now; nothing where a directory has none for this node.
    fn file(&self) -> Option<PathBuf> {
        match &self.place {
            Place::File(path) => Some(path.clone()),
            Place::Directory { path, node } => {
                let names = [format!("{node}.json"), node.clone(), "default.json".to_owned()];
                names.iter().map(|name| path.join(name)).find(|path| path.is_file())
            }
        }
    }

    /// The directory in which the file is put, moved or swapped.
    fn directory(&self) -> &Path {
        match &self.place {
            Place::File(path) => match path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            },
            Place::Directory { path, .. } => path,
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File(path) => write!(f, "{}", path.display()),
            Place::Directory { path, node } => write!(f, "{} for node {node}", path.display()),
        }
    }
}

/// The new config beside the one that is served: a pool that became bad keeps its last good form.
pub fn over(new: Config, served: &Config) -> Config {
    let mut config = new;
    for refused in &config.refused {
        let Some(resource) = &refused.resource else { continue };
        let last_good = served.pools.iter().find(|pool| pool.resource.to_string() == *resource);
        let is_taken = |name: &String| config.pools.iter().any(|pool| pool.resource.to_string() == *name);
        if let (Some(last_good), false) = (last_good, is_taken(resource)) {
            let at = config.pools.iter().take_while(|pool| pool.position < refused.position).count();
            config.pools.insert(at, Arc::clone(last_good));
        }
    }
    config
}

/// Tells that the config may be another one: the kernel's word where it can be had, the clock where not.
#[derive(Debug)]
pub(super) struct ConfigWatch {
    hint: Arc<Notify>,
    tick: Interval,
    watcher: Option<RecommendedWatcher>,
}

impl ConfigWatch {
    pub(super) fn new(source: &ConfigSource) -> Self {
        let hint = Arc::new(Notify::new());
        let directory = source.directory();
        let told = Arc::clone(&hint);
        let names = source.names();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let concerns = |event: &notify::Event| {
                let is_name =
                    |path: &PathBuf| path.file_name().is_some_and(|name| names.iter().any(|n| n == name));
                let is_change = !matches!(event.kind, EventKind::Access(_));
                event.need_rescan() || (is_change && event.paths.iter().any(is_name))
            };
            if event.map_or(true, |event| concerns(&event)) {
                told.notify_one();
            }
        })
        .and_then(|mut watcher| {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        let watcher = match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(
                    directory = %directory.display(), %error,
                    "cannot watch for a new config, so it is read every {QUICK_LOOK:?}; SIGHUP makes it read at once"
                );
                None
            }
        };
        // The first tick is at once: what changed since the config was read must not be missed.
        let mut tick = interval(if watcher.is_some() { SLOW_LOOK } else { QUICK_LOOK });
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { hint, tick, watcher }
    }

    /// Whether the file is read at intervals only.
    pub(super) fn is_polling(&self) -> bool {
        self.watcher.is_none()
    }

    /// Waits until the config may be another one. Safe to cancel.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.hint.notified() => {}
            _ = self.tick.tick() => {}
        }
    }
}
