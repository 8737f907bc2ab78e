//! Names of PCI vendors and devices.
//!
//! `pci.names` holds what a device plugin needs of the PCI id list (<https://pci-ids.ucw.cz>, here of 2025-07-11, used
//! under its 3-clause BSD license): a line `8086 Intel Corporation` for each vendor and `8086:1889 …` for each device,
//! sorted by bytes. It is searched as it stands, so that a plugin which names nothing has none of it in memory; a table of
//! strings would cost three megabytes of each process, for the loader has to write every pointer in it. A newer list:
//!
//! ```text
//! awk '/^C /{exit} /^[0-9a-f]+  /{v=$1; print} /^\t[0-9a-f]/{print v ":" substr($0,2)}' pci.ids |
//!   sed 's/  / /' | LC_ALL=C sort
//! ```

use super::HexId;

const NAMES: &str = include_str!("pci.names");

/// The name of a vendor in the PCI id list.
pub fn vendor_name(vendor: HexId) -> Option<&'static str> {
    find(&vendor.to_string())
}

/// The name of a device in the PCI id list.
pub fn device_name(vendor: HexId, device: HexId) -> Option<&'static str> {
    find(&format!("{vendor}:{device}"))
}

/// Halves the text, which begins and ends at line ends, until the line is found.
fn find(key: &str) -> Option<&'static str> {
    let mut rest = NAMES.trim_end().as_bytes();
    loop {
        let (before, after) = rest.split_at(rest.len() / 2);
        let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let end = after.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |at| before.len() + at);
        let line = std::str::from_utf8(rest.get(start..end)?).ok()?;
        let (known, name) = line.split_once(' ')?;
        rest = match key.cmp(known) {
            std::cmp::Ordering::Equal => return Some(name),
            std::cmp::Ordering::Less => rest.get(..start.checked_sub(1)?)?,
            std::cmp::Ordering::Greater => rest.get(end + 1..)?,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_list_is_found() {
        for line in NAMES.lines() {
            let (key, name) = line.split_once(' ').unwrap();
            assert_eq!(find(key), Some(name), "{key}");
        }
        assert_eq!(vendor_name(HexId(0x8086)), Some("Intel Corporation"));
        assert_eq!(device_name(HexId(0x8086), HexId(0x1889)), Some("Ethernet Adaptive Virtual Function"));
    }

    #[test]
    fn what_is_not_in_the_list_has_no_name() {
        for key in ["", "0", "0000", "8086:", "8086:188a0", "ffff:ffff", "zzzz"] {
            assert_eq!(find(key), None, "{key}");
        }
    }
}
