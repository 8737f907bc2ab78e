//! Notices that nodes, entries or validation files of a node come and go. Every event only means: look again.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::mpsc;

use super::node::Node;

/// How often to look where the kernel tells of changes. It tells of none in `/sys`, and may forget some.
const SLOW_LOOK: Duration = Duration::from_secs(10);
/// How often to look where no inotify is left.
const QUICK_LOOK: Duration = Duration::from_secs(2);

/// Tells of changes.
#[derive(Debug)]
pub(super) struct Watch {
    changes: Option<mpsc::Receiver<()>>,
    /// Why the clock alone is left.
    pub(super) deaf: Option<io::Error>,
}

impl Watch {
    pub(super) fn new(node: &Node) -> Self {
        let directories =
            vec![node.place("/dev"), node.place("/sys/class/uacce"), node.run_directory().to_owned()];
        match start(directories) {
            Ok(changes) => Self { changes: Some(changes), deaf: None },
            Err(error) => Self { changes: None, deaf: Some(error) },
        }
    }

    /// Waits until something may be other than before.
    pub(super) async fn changed(&mut self) {
        let Some(changes) = &mut self.changes else { return tokio::time::sleep(QUICK_LOOK).await };
        match tokio::time::timeout(SLOW_LOOK, changes.recv()).await {
            Ok(Some(())) | Err(_) => {}
            Ok(None) => self.changes = None,
        }
    }
}

/// A thread of its own blocks on the kernel: it ends with the process, or when nobody listens any more.
fn start(directories: Vec<PathBuf>) -> io::Result<mpsc::Receiver<()>> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    follow(&inotify, &directories)?;
    // One that waits is enough: whoever looks sees everything.
    let (sender, receiver) = mpsc::channel(1);
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
        while let Ok(events) = inotify.read_events() {
            let mut names = events.iter().filter_map(|event| event.name.as_ref()?.to_str());
            let matters = names.any(|name| concerns(name, &directories));
            // A directory may be there now that was not.
            let followed = follow(&inotify, &directories).is_ok();
            if !followed
                || (matters && matches!(sender.try_send(()), Err(mpsc::error::TrySendError::Closed(()))))
            {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Watches every directory, or the nearest one above that is there.
fn follow(inotify: &Inotify, directories: &[PathBuf]) -> io::Result<()> {
    let names = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_ONLYDIR;
    for directory in directories {
        for place in directory.ancestors() {
            match inotify.add_watch(place, names) {
                Ok(_) => break,
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Terminals, disks and the like come and go in `/dev`, too.
fn concerns(name: &str, directories: &[PathBuf]) -> bool {
    let is_awaited = |directory: &PathBuf| Path::new(directory).iter().any(|part| part == name);
    name.starts_with("hisi_") || name.starts_with("driver-re") || directories.iter().any(is_awaited)
}
