//! The types of engines, and the modules that drive them.

use std::fmt;
use std::str::FromStr;

use crate::model::HexId;
/// A type of engine; its driver is its module, and names of uacce entries begin with it.
pub use crate::operator::engine::Engine as EngineType;
use crate::operator::engine::VENDOR;

/// What every engine's module needs, in the order of unloading
/// (<https://github.com/torvalds/linux/tree/master/drivers/crypto/hisilicon>).
pub(super) const SHARED_MODULES: [&str; 2] = ["hisi_qm", "uacce"];

/// Why a text is no type of engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no type of engine; write hpre, sec or zip")]
pub struct ParseEngineTypeError(String);

impl EngineType {
    /// The type of a PCI function, physical or virtual.
    pub fn of_function(vendor: HexId, device: HexId) -> Option<Self> {
        let is = |text: &str, id: HexId| text.parse() == Ok(id);
        let has = |engine: &Self| engine.devices().iter().any(|text| is(text, device));
        Self::ALL.into_iter().find(|engine| is(VENDOR, vendor) && has(engine))
    }

    /// Whether a uacce entry has this name: `hisi_hpre-6`.
    pub fn makes(self, entry: &str) -> bool {
        entry.strip_prefix(self.driver()).is_some_and(|rest| rest.starts_with('-'))
    }
}

impl fmt::Display for EngineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EngineType {
    type Err = ParseEngineTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text.trim());
        known.ok_or_else(|| ParseEngineTypeError(text.to_owned()))
    }
}

/// Modules of the chain, in the order in which they are unloaded: who uses another one goes first.
pub(super) fn modules_from_the_top() -> impl DoubleEndedIterator<Item = &'static str> {
    [EngineType::Zip, EngineType::Hpre, EngineType::Sec]
        .map(EngineType::driver)
        .into_iter()
        .chain(SHARED_MODULES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_told_by_their_ids_and_entries_by_their_names() {
        for (device, kind) in [(0xa258, "hpre"), (0xa259, "hpre"), (0xa255, "sec"), (0xa251, "zip")] {
            assert_eq!(EngineType::of_function(HexId(0x19e5), HexId(device)).unwrap().as_str(), kind);
        }
        assert_eq!(EngineType::of_function(HexId(0x8086), HexId(0xa258)), None);
        assert!(EngineType::Sec.makes("hisi_sec2-0"));
        assert!(!EngineType::Sec.makes("hisi_sec20"));
        assert_eq!(" zip".parse(), Ok(EngineType::Zip));
        assert!("rde".parse::<EngineType>().unwrap_err().to_string().contains("hpre, sec or zip"));
        let order: Vec<_> = modules_from_the_top().collect();
        assert_eq!(order, ["hisi_zip", "hisi_hpre", "hisi_sec2", "hisi_qm", "uacce"]);
    }
}
