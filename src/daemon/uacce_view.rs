//! Views of `/sys/class/uacce` that show a container its own engines.
//!
//! libwd lists the class directory and takes the engine with the most free queues, whether the container has its node or
//! not. A view is a directory of links with the targets that the kernel's own links have; mounted read-only over the class
//! directory, they resolve into the container's sysfs. It lies below the kubelet's `device-plugins` directory: that is on
//! the host, at the same path, in every DaemonSet in the field, the kubelet's clean-up passes over folders, and it survives
//! a reboot, after which the kubelet replays mounts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::model::stable_hash;

/// The directory of all views.
#[derive(Debug, Clone)]
pub struct UacceViews(PathBuf);

impl UacceViews {
    /// Where a container sees the class.
    pub const CLASS: &str = "/sys/class/uacce";

    /// The views below a kubelet's `device-plugins` directory.
    pub fn new(device_plugins: &Path) -> Self {
        Self(device_plugins.join("pcidp/uacce"))
    }

    /// Where the view of these devices lies, whatever their engines are called now.
    pub fn path(&self, ids: &[&str]) -> PathBuf {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        self.0.join(format!("{:016x}", stable_hash(&ids.join(","))))
    }

    /// Makes a view, or brings it up to date: exactly these links. A container that has it mounted sees the change.
    ///
    /// # Errors
    /// The path, and what the kernel said.
    pub fn write(
        &self,
        ids: &[&str],
        links: &BTreeMap<String, String>,
    ) -> Result<PathBuf, (PathBuf, io::Error)> {
        let path = self.path(ids);
        let write = || -> io::Result<()> {
            fs::create_dir_all(&path)?;
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                let name = entry.file_name();
                let wanted = name.to_str().and_then(|name| links.get(name));
                let target = fs::read_link(entry.path()).ok();
                if wanted.map(Path::new) != target.as_deref() {
                    fs::remove_file(entry.path())?;
                }
            }
            for (name, target) in links {
                match symlink(target, path.join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        };
        write().map_err(|error| (path.clone(), error))?;
        Ok(path)
    }

    /// Removes the views that are not among those of `kept`, each the ids of one container.
    pub fn keep_only(&self, kept: &[Vec<String>]) {
        let path = |ids: &Vec<String>| self.path(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let kept: Vec<PathBuf> = kept.iter().map(path).collect();
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            if kept.contains(&path) {
                continue;
            }
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "view of no container removed"),
                Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove a view"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, target)| (name.to_owned(), target.to_owned())).collect()
    }

    #[test]
    fn a_view_holds_exactly_its_links_also_after_engines_were_renumbered() {
        let place = tempfile::tempdir().unwrap();
        let views = UacceViews::new(place.path());
        let ids = ["0000:79:00.1", "0000:79:00.2"];
        views
            .write(&ids, &links(&[("hisi_hpre-6", "../../devices/a"), ("hisi_hpre-7", "../../devices/b")]))
            .unwrap();
        let now = links(&[("hisi_hpre-7", "../../devices/a"), ("hisi_hpre-8", "../../devices/b")]);
        let path = views.write(&["0000:79:00.2", "0000:79:00.1"], &now).unwrap();
        let found: BTreeMap<String, String> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let target = fs::read_link(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), target.to_str().unwrap().to_owned())
            })
            .collect();
        assert_eq!(found, now);
    }

    #[test]
    fn views_that_no_container_has_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let views = UacceViews::new(place.path());
        let kept = views.write(&["a"], &links(&[("x-1", "y")])).unwrap();
        let gone = views.write(&["b"], &links(&[("x-2", "y")])).unwrap();
        views.keep_only(&[vec!["a".to_owned()]]);
        assert!(kept.exists() && !gone.exists());
    }
}
