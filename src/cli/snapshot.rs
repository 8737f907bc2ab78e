//! `pcidp snapshot`.

use std::io::Write;

use super::args::SnapshotArguments;
use super::{Outcome, host};
use crate::host::recording::{self, SnapshotOptions};

pub(super) fn snapshot(arguments: &SnapshotArguments, out: &mut dyn Write) -> Outcome {
    let root = &arguments.host_root;
    let options = SnapshotOptions { identities: arguments.identities };
    let mut recording = match root.is_dir() && root.as_os_str() != "/" {
        true => recording::from_unpacked(root, options)?,
        false => recording::record(&host::open(root)?, options),
    };
    let notes = recording.header().to_vec();
    let about = concat!("Recorded by pcidp ", env!("CARGO_PKG_VERSION"), ".");
    recording.set_header(std::iter::once(about).chain(notes.iter().map(String::as_str)));
    let text = recording.to_string();
    match &arguments.out {
        Some(path) => std::fs::write(path, text)
            .map_err(|error| anyhow::anyhow!("cannot write {}: {error}", path.display()))?,
        None => out.write_all(text.as_bytes())?,
    }
    Ok(())
}
