//! Virtual functions: made where there are none, and never changed under somebody's feet.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};

use super::engine::EngineType;
use super::error::FunctionsError;
use super::found::{Engine, Found, Physical};
use super::node::Node;

/// Makes as many virtual functions as asked for on every physical function of a type, and says what was made. A function on
/// another driver than the engine's is left alone.
///
/// # Errors
/// Where there are others already, or more are asked for than there can be: then nothing is changed. Else what the kernel
/// said.
pub(super) fn make(
    node: &Node,
    found: &Found,
    wanted: &BTreeMap<EngineType, u32>,
) -> Result<BTreeMap<String, u32>, FunctionsError> {
    let mut due = Vec::new();
    for (&kind, &count) in wanted {
        let drives = |engine: &&Engine| engine.driver.as_deref() == Some(kind.driver());
        for engine in found.of(kind).filter(drives) {
            let Some(Physical { functions: now, most }) = engine.physical else { continue };
            let function = engine.address.to_string();
            match now {
                now if now == count => {}
                0 if count > most => return Err(FunctionsError::TooMany { function, most, wanted: count }),
                0 => due.push((function, count)),
                now => return Err(FunctionsError::Other { function, now, wanted: count }),
            }
        }
    }
    let mut made = BTreeMap::new();
    for (function, count) in due {
        write(node, &function, 0, count)?;
        made.insert(function, count);
    }
    Ok(made)
}

/// Removes virtual functions that this program made.
///
/// # Errors
/// What the kernel said: that one of them is in use, for example.
pub(super) fn remove(node: &Node, ours: &BTreeMap<String, u32>) -> Result<(), FunctionsError> {
    ours.iter().try_for_each(|(function, &count)| write(node, function, count, 0))
}

/// Makes functions again that were removed.
///
/// # Errors
/// What the kernel said.
pub(super) fn restore(node: &Node, ours: &BTreeMap<String, u32>) -> Result<(), FunctionsError> {
    ours.iter().try_for_each(|(function, &count)| write(node, function, 0, count))
}

fn write(node: &Node, function: &str, now: u32, wanted: u32) -> Result<(), FunctionsError> {
    let path = format!("/sys/bus/pci/devices/{function}/sriov_numvfs");
    let written = || {
        // Not made where it is not there: the kernel would have made it.
        let mut file = OpenOptions::new().write(true).truncate(true).open(node.place(&path))?;
        file.write_all(wanted.to_string().as_bytes())?;
        match node.host().read(&path)? {
            text if text == wanted.to_string() => Ok(()),
            text => Err(io::Error::other(format!("there are {text} of them now"))),
        }
    };
    written().map_err(|source| FunctionsError::Refused { function: function.to_owned(), now, wanted, source })
}
