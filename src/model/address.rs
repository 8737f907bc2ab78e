//! PCI addresses.

use std::fmt;
use std::str::FromStr;

/// A PCI address: `domain:bus:device.function`.
///
/// A domain has 4 to 8 hex digits: the kernel prints it with `%04x`, and Intel VMD and Hyper-V make
/// domains above `ffff` (`pci_setup_device` in
/// <https://github.com/torvalds/linux/blob/master/drivers/pci/probe.c>).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    /// Device in the upper five bits, function in the lower three.
    devfn: u8,
}

/// Why a text is not a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// The text has not the form of an address.
    #[error("`{0}` is not a PCI address; write domain:bus:device.function, such as 0000:3b:00.1")]
    Form(String),
    /// Device or function is out of range.
    #[error("`{0}` is not a PCI address: a device is 00 to 1f and a function 0 to 7")]
    Range(String),
}

impl PciAddress {
    /// Parses a name as the kernel prints it (domain present, lower case); `None` for anything else.
    pub fn from_sysfs(name: &str) -> Option<Self> {
        let address: Self = name.parse().ok()?;
        let canonical = address.to_string() == name;
        canonical.then_some(address)
    }

    /// The function number, 0 to 7.
    pub fn function(self) -> u8 {
        self.devfn & 7
    }

    /// The address of function 0 of the same card.
    pub fn card(self) -> Self {
        Self { devfn: self.devfn & !7, ..self }
    }
}

/// Accepts any spelling that people write: surrounding white space, upper case, no domain (then `0000`).
impl FromStr for PciAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseAddressError::Form(text.to_owned());
        let trimmed = text.trim();
        let (head, devfn) = trimmed.rsplit_once(':').ok_or_else(form)?;
        let (domain, bus) = match head.rsplit_once(':') {
            Some((domain, bus)) => (hex(domain, 4..=8).ok_or_else(form)?, bus),
            None => (0, head),
        };
        let bus = hex(bus, 2..=2).ok_or_else(form)?;
        let (device, function) = devfn.split_once('.').ok_or_else(form)?;
        let device = hex(device, 2..=2).ok_or_else(form)?;
        let function = hex(function, 1..=1).ok_or_else(form)?;
        if device > 0x1f || function > 7 {
            return Err(ParseAddressError::Range(text.to_owned()));
        }
        let narrow = |value: u32| u8::try_from(value).map_err(|_| form());
        Ok(Self { domain, bus: narrow(bus)?, devfn: narrow(device << 3 | function)? })
    }
}

fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let clean = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    clean.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.devfn >> 3, self.devfn & 7)
    }
}

impl fmt::Debug for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_spelling_of_an_address_is_the_same_address() {
        for text in ["00:06.0", "0000:00:06.0", " 0000:00:06.0 ", "0000:00:06.0\n"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), "0000:00:06.0");
        }
        assert_eq!("0000:3B:00.1".parse::<PciAddress>().unwrap().to_string(), "0000:3b:00.1");
    }

    #[test]
    fn domains_of_five_to_eight_digits_are_kept() {
        for text in ["10000:01:00.0", "abcde1:00:1f.7", "ffffffff:ff:1f.7"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form_to_write() {
        for text in
            ["", "0000", "0:1", "000:00:00.0", "0000:00:00", "0000:00:20.0", "0000:00:00.8", "zz:00.0"]
        {
            let error = text.parse::<PciAddress>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert_eq!(PciAddress::from_sysfs("00:06.0"), None);
        assert_eq!(PciAddress::from_sysfs("0000:3B:00.1"), None);
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(domain: u32, bus: u8, devfn: u8) {
            let address = PciAddress { domain, bus, devfn };
            prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
            prop_assert_eq!(PciAddress::from_sysfs(&address.to_string()), Some(address));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,24}") {
            let _ = text.parse::<PciAddress>();
        }
    }
}
