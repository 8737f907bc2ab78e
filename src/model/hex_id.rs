//! Vendor, device and class numbers.

use std::fmt;
use std::str::FromStr;

/// A 16-bit PCI vendor or device id; `15b3`, `0x15B3` and `15B3` are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HexId(pub u16);

/// Why a text is not a hex number of the wanted size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct ParseHexError {
    text: String,
    wanted: &'static str,
}

fn digits(text: &str) -> &str {
    let trimmed = text.trim();
    trimmed.strip_prefix("0x").or_else(|| trimmed.strip_prefix("0X")).unwrap_or(trimmed)
}

fn all_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl FromStr for HexId {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseHexError {
            text: text.to_owned(),
            wanted: "a hex id; write four hex digits, such as 15b3",
        };
        let digits = digits(text);
        if digits.len() > 4 || !all_hex(digits) {
            return Err(refuse());
        }
        u16::from_str_radix(digits, 16).map(Self).map_err(|_| refuse())
    }
}

impl fmt::Display for HexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// A PCI class: base class, subclass and programming interface (24 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciClass(pub u32);

impl PciClass {
    /// The base class: 0x02 is a network controller, 0x10 an encryption controller, 0x12 a processing accelerator.
    pub fn base(self) -> u8 {
        (self.0 >> 16 & 0xff) as u8
    }

    /// A network controller.
    pub fn is_network(self) -> bool {
        self.base() == 0x02
    }

    /// A function that `deviceType: accelerator` means without being asked: a processing accelerator, a network and
    /// computing encryption controller (KAE HPRE and SEC, Nitrox), or a co-processor (QAT).
    pub fn is_accelerator(self) -> bool {
        self.base() == 0x12 || matches!(self.base_and_sub(), 0x1000 | 0x0b40)
    }

    /// A function that counts as an accelerator where a selector names its device id: other encryption controllers (a
    /// CPU's own security processor among them), processors, unassigned classes, and RAID controllers (KAE RDE).
    pub fn is_accelerator_by_id(self) -> bool {
        matches!(self.base(), 0x10 | 0x0b | 0xff) || self.base_and_sub() == 0x0104
    }

    /// Base class and subclass.
    pub fn base_and_sub(self) -> u16 {
        (self.0 >> 8 & 0xffff) as u16
    }
}

impl FromStr for PciClass {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseHexError { text: text.to_owned(), wanted: "a PCI class of six hex digits" };
        let digits = digits(text);
        if digits.len() > 6 || !all_hex(digits) {
            return Err(refuse());
        }
        u32::from_str_radix(digits, 16).map(Self).map_err(|_| refuse())
    }
}

impl fmt::Display for PciClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

/// The leading 2 to 6 hex digits of a PCI class: `12`, `0b40`, `100000`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassPattern(String);

impl ClassPattern {
    /// Whether `class` begins with these digits.
    pub fn matches(&self, class: PciClass) -> bool {
        class.to_string().starts_with(&self.0)
    }
}

impl FromStr for ClassPattern {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = digits(text);
        if !(2..=6).contains(&digits.len()) || !all_hex(digits) {
            let wanted = "a PCI class; write 2 to 6 hex digits, such as 12 or 0b40";
            return Err(ParseHexError { text: text.to_owned(), wanted });
        }
        Ok(Self(digits.to_ascii_lowercase()))
    }
}

impl fmt::Display for ClassPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_equal_in_every_spelling() {
        for text in ["15b3", "0x15B3", "15B3", " 0X15b3\n"] {
            assert_eq!(text.parse::<HexId>(), Ok(HexId(0x15b3)));
        }
        assert_eq!(HexId(0x19).to_string(), "0019");
        for text in ["", "0x", "15b3a", "mlx5", "-1", "+123"] {
            assert!(text.parse::<HexId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_class_pattern_matches_by_its_leading_digits() {
        let class: PciClass = "0x0b4000".parse().unwrap();
        assert_eq!((class.base(), class.base_and_sub()), (0x0b, 0x0b40));
        for (pattern, matches) in
            [("0b", true), ("0x0B40", true), ("0b4000", true), ("0b41", false), ("12", false)]
        {
            assert_eq!(pattern.parse::<ClassPattern>().unwrap().matches(class), matches, "{pattern}");
        }
        for text in ["", "1", "0b40000", "zz"] {
            assert!(text.parse::<ClassPattern>().is_err(), "{text}");
        }
    }
}
