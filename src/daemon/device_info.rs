//! Device-information files on disk.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::files::put;
use crate::model::{DeviceId, DeviceInfoFile, ResourceName};

/// Where Multus and the CNI plugins look
/// (<https://github.com/k8snetworkplumbingwg/device-info-spec/blob/main/SPEC.md>).
pub const DEVICE_INFO_DIRECTORY: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";

/// The directory of the files.
#[derive(Debug, Clone)]
pub struct DeviceInfoDirectory(PathBuf);

impl DeviceInfoDirectory {
    /// A directory that need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Writes a file atomically with mode 0444; one that is there with the same content is left alone.
    ///
    /// # Errors
    /// The path, and what the kernel said.
    pub fn write(&self, file: &DeviceInfoFile) -> Result<(), (PathBuf, io::Error)> {
        put(&self.0, &file.name, &file.content, 0o444).map_err(|error| (self.0.join(&file.name), error))
    }

    /// Removes the files of a resource whose devices the predicate does not know.
    pub fn sweep(&self, resource: &ResourceName, exists: impl Fn(&DeviceId) -> bool) {
        let Ok(entries) = fs::read_dir(&self.0) else {
            return;
        };
        let prefix = format!("{resource}-").replace('/', "-");
        for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            // The id decides whose file it is: `a-b` is a resource too, beside `a`.
            let id = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix("-device.json"));
            let Some(id) = id.and_then(DeviceId::parse) else { continue };
            if exists(&id) {
                continue;
            }
            let path = self.0.join(&name);
            match fs::remove_file(&path) {
                Ok(()) => tracing::debug!(path = %path.display(), "device gone, its file removed"),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a file of a gone device");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn file(name: &str, content: &str) -> DeviceInfoFile {
        DeviceInfoFile { device: "0000:01:00.0".into(), name: name.to_owned(), content: content.to_owned() }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_readable_by_all_and_replaced_as_a_whole() {
        let place = tempfile::tempdir().unwrap();
        let directory = DeviceInfoDirectory::new(place.path().join("a/b"));
        directory.write(&file("x-device.json", "one")).unwrap();
        directory.write(&file("x-device.json", "two")).unwrap();
        let path = place.path().join("a/b/x-device.json");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
        assert_eq!(names(path.parent().unwrap()), ["x-device.json"]);
    }

    #[test]
    fn a_sweep_removes_only_the_files_of_gone_devices_of_this_resource() {
        let place = tempfile::tempdir().unwrap();
        let directory = DeviceInfoDirectory::new(place.path());
        let kept = ["i.com-a-0000:01:00.0-device.json", "i.com-a-b-0000:01:00.1-device.json", "other"];
        for name in
            kept.iter().chain(&["i.com-a-0000:01:00.1-device.json", "i.com-a-mlx5_core.sf.4-device.json"])
        {
            directory.write(&file(name, "{}")).unwrap();
        }
        let resource = ResourceName::new("i.com", "a").unwrap();
        directory.sweep(&resource, |id| id.as_str() == "0000:01:00.0");
        assert_eq!(names(place.path()), kept);
    }
}
