//! Notices when a socket in a directory comes, goes, or is made anew.
//!
//! ```text
//!            no inotify left, or no directory
//!  ┌─────────┐ ─────────────────────────────▶ ┌───────┐
//!  │ inotify │                                │ clock │   every 2 s, one warning
//!  └─────────┘ ◀───────────────────────────── └───────┘
//!   every 30 s      a later try succeeds
//! ```
//!
//! Either only makes it look: what counts is whether the sockets are others than at the last look.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often a directory is read where the kernel tells of changes: it may forget some (a full queue, a directory
/// that was replaced).
pub const SLOW_LOOK: Duration = Duration::from_secs(30);

/// How often a directory is read where the kernel has no inotify instance or watch left.
pub const QUICK_LOOK: Duration = Duration::from_secs(2);

/// Which socket it is. A path alone does not say: a restarted kubelet makes `kubelet.sock` anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketIdentity {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds. An inode number is given away again at once by most file systems.
    changed: (i64, i64),
}

impl SocketIdentity {
    /// The socket at `path`; nothing where there is none.
    pub fn of(path: &Path) -> Option<Self> {
        Self::from_metadata(&path.symlink_metadata().ok()?)
    }

    pub(super) fn from_metadata(metadata: &Metadata) -> Option<Self> {
        metadata.file_type().is_socket().then(|| Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Whether both are one file, whose owner or mode may have changed in between.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// The sockets in a directory, by file name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sockets(BTreeMap<OsString, SocketIdentity>);

impl Sockets {
    /// Reads a directory; one that does not exist has no sockets.
    ///
    /// # Errors
    /// When it cannot be read, which says nothing about the sockets.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?,
        };
        let mut sockets = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            // A file that went in between is not there.
            let identity = entry.metadata().ok();
            if let Some(identity) = identity.as_ref().and_then(SocketIdentity::from_metadata) {
                sockets.insert(entry.file_name(), identity);
            }
        }
        Ok(Self(sockets))
    }

    /// The socket of that file name.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<SocketIdentity> {
        self.0.get(name.as_ref()).copied()
    }

    /// File names, sorted; those that are not UTF-8 are nobody's here.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|name| name.to_str())
    }
}

/// Watches the sockets in a directory.
///
/// Nothing is missed between registration and watching: the caller compares what [`SocketWatch::sockets`] holds
/// with the identity that [`super::register`] returned.
#[derive(Debug)]
pub struct SocketWatch {
    directory: PathBuf,
    hint: Arc<Notify>,
    source: Source,
    tick: Interval,
    sockets: Sockets,
}

/// What makes the watch look.
#[derive(Debug)]
enum Source {
    /// The kernel, with the device and inode of the directory that is watched. The watcher is kept for its thread.
    Inotify(#[expect(dead_code, reason = "kept for its thread")] RecommendedWatcher, Option<(u64, u64)>),
    /// The clock, until the kernel can.
    Clock,
    /// The clock, by choice.
    ClockOnly,
}

impl SocketWatch {
    /// Watches with inotify, or reads the directory every [`QUICK_LOOK`] where that cannot be had.
    pub fn new(directory: &Path) -> Self {
        let mut watch = Self::polling(directory, QUICK_LOOK);
        watch.source = Source::Clock;
        if let Err(error) = watch.attach() {
            watch.warn(&error);
        }
        // Once more, now that no change can go unseen.
        watch.look();
        watch
    }

    /// Reads the directory at every `period`.
    pub fn polling(directory: &Path, period: Duration) -> Self {
        let mut watch = Self {
            directory: directory.to_owned(),
            hint: Arc::new(Notify::new()),
            source: Source::ClockOnly,
            tick: ticks(period),
            sockets: Sockets::default(),
        };
        watch.look();
        watch
    }

    /// Whether the directory is read at intervals only.
    pub fn is_polling(&self) -> bool {
        !matches!(self.source, Source::Inotify(..))
    }

    /// The sockets at the last look.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Waits until the sockets are others than at the last look. Safe to cancel.
    pub async fn changed(&mut self) -> &Sockets {
        loop {
            tokio::select! {
                () = self.hint.notified() => {}
                _ = self.tick.tick() => {}
            }
            self.follow_directory();
            if self.look() {
                return &self.sockets;
            }
        }
    }

    /// Whether the sockets are others than before; what cannot be read is as before.
    fn look(&mut self) -> bool {
        match Sockets::read(&self.directory) {
            Ok(now) => now != std::mem::replace(&mut self.sockets, now.clone()),
            Err(error) => {
                tracing::debug!(directory = %self.directory.display(), %error, "cannot read the directory");
                false
            }
        }
    }

    /// A directory that was removed and made again has to be watched again.
    fn follow_directory(&mut self) {
        match &self.source {
            Source::Inotify(_, watched) if *watched != identity(&self.directory) => {
                self.source = Source::Clock;
                self.tick = ticks(QUICK_LOOK);
                if let Err(error) = self.attach() {
                    self.warn(&error);
                }
            }
            // Warned of when it began.
            Source::Clock => drop(self.attach()),
            Source::Inotify(..) | Source::ClockOnly => {}
        }
    }

    fn attach(&mut self) -> notify::Result<()> {
        let hint = Arc::clone(&self.hint);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| concerns_names(&event)) {
                hint.notify_one();
            }
        })?;
        let watched = identity(&self.directory);
        watcher.watch(&self.directory, RecursiveMode::NonRecursive)?;
        self.source = Source::Inotify(watcher, watched);
        self.tick = ticks(SLOW_LOOK);
        Ok(())
    }

    fn warn(&self, error: &notify::Error) {
        tracing::warn!(
            directory = %self.directory.display(),
            %error,
            period = ?QUICK_LOOK,
            "cannot watch the directory, reading it at intervals instead; \
             fs.inotify.max_user_instances or max_user_watches of the node may be exhausted"
        );
    }
}

fn ticks(period: Duration) -> Interval {
    let mut tick = interval(period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Reading the directory is an event too, and the kubelet writes its checkpoint there: only names count.
fn concerns_names(event: &notify::Event) -> bool {
    event.need_rescan()
        || matches!(
            event.kind,
            EventKind::Any
                | EventKind::Create(_)
                | EventKind::Remove(_)
                | EventKind::Modify(ModifyKind::Any | ModifyKind::Name(_))
                | EventKind::Other
        )
}
