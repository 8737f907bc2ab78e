//! Files that others read while they are written.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Puts a file into a directory, whole or not at all; the directory need not exist. One that is there with the same
/// content is left alone.
pub(super) fn put(directory: &Path, name: &str, text: &str, mode: u32) -> io::Result<()> {
    let path = directory.join(name);
    if fs::read(&path).is_ok_and(|content| content == text.as_bytes()) {
        return Ok(());
    }
    let new = || tempfile::Builder::new().prefix(".pcidp-").tempfile_in(directory);
    let mut temporary = match new() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(directory)?;
            new()?
        }
        other => other?,
    };
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}
