//! Logs: to stderr, and to a file where one is asked for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A relative `--log-dir` lies below this directory, as in the Go plugin's image.
const BASE: &str = "/var/log";
const FILE_NAME: &str = "pcidp.log";
/// At this size the file becomes `pcidp.log.1`, which replaces the one before.
const FILE_LIMIT: u64 = 10 << 20;

/// Sets up logging for the whole process. A directory that cannot be written costs one warning.
pub fn init(level: LevelFilter, format: Format, directory: Option<&Path>) {
    let file = directory.map(|directory| {
        let directory = Path::new(BASE).join(directory);
        LogFile::open(&directory).map_err(|error| (directory, error))
    });
    let (file, failed) = match file {
        Some(Ok(file)) => (Some(file), None),
        Some(Err(failed)) => (None, Some(failed)),
        None => (None, None),
    };
    let registry = tracing_subscriber::registry()
        .with(layer(format, io::stderr, io::stderr().is_terminal()).with_filter(level))
        .with(file.map(|file| layer(format, Mutex::new(file), false).with_filter(level)));
    // It fails only where a subscriber is set already, which then does the work.
    let _ = registry.try_init();
    if let Some((directory, error)) = failed {
        tracing::warn!(directory = %directory.display(), %error, "cannot write a log file there; logging to stderr only");
    }
}

fn layer<S, W>(format: Format, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours).with_target(false);
    match format {
        Format::Text => layer.boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
}

impl LogFile {
    fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join(FILE_NAME);
        let file = append(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size, limit: FILE_LIMIT })
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size >= self.limit {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
            self.file = append(&self.path)?;
            self.size = 0;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads a level: a word, or one of glog's numbers. Every DaemonSet in the field says 10 and means no more than
/// `info` by it.
pub fn level(text: &str) -> Option<LevelFilter> {
    if text.parse::<i32>().is_ok() {
        return Some(LevelFilter::INFO);
    }
    let word = text.to_ascii_lowercase();
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    match word.as_str() {
        "warning" => Some(LevelFilter::WARN),
        "fatal" | "panic" => Some(LevelFilter::ERROR),
        word => known.contains(&word).then(|| word.parse().ok()).flatten(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glog_numbers_are_info_and_words_are_themselves() {
        for text in ["0", "4", "10", "-1", "info", "INFO"] {
            assert_eq!(level(text), Some(LevelFilter::INFO), "{text}");
        }
        assert_eq!(level("warning"), Some(LevelFilter::WARN));
        assert_eq!(level("debug"), Some(LevelFilter::DEBUG));
        assert_eq!(level("loud"), None);
    }

    #[test]
    fn a_full_log_file_makes_room_and_one_older_file_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let mut file = LogFile::open(place.path()).unwrap();
        file.limit = 4;
        for line in ["one\n", "two\n", "three\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(place.path().join("pcidp.log")).unwrap(), "three\n");
        assert_eq!(fs::read_to_string(place.path().join("pcidp.log.1")).unwrap(), "two\n");
    }
}
