//! Files that others read while they are written.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Puts a file into a directory, whole or not at all; the directory need not exist. One that is there with the same
/// content is left alone.
pub(super) fn put(directory: &Path, name: &str, text: &str, mode: u32) -> io::Result<()> {
    let path = directory.join(name);
    if holds(&path, text.as_bytes()).unwrap_or(false) {
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

/// Whether a file has exactly this content. One byte more is asked for than there should be: what is as it should be comes in
/// one read, which ends where the file ends.
fn holds(path: &Path, content: &[u8]) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut found = vec![0; content.len() + 1];
    let length = file.read(&mut found)?;
    Ok(found.get(..length) == Some(content))
}
