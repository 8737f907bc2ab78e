//! Lists of index ranges: `0,2-7,9`.

use std::fmt;
use std::str::FromStr;

/// A non-empty set of VF or SF indices, written as numbers and ranges with both ends included.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexRanges(Vec<(u32, u32)>);

/// Why a text is not a list of ranges; each names the part and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseRangesError {
    /// Nothing was written.
    #[error("the range is empty; write indices such as 0,2-7,9")]
    Empty,
    /// A part is neither a number nor a range.
    #[error("`{0}` is neither an index nor a range; write indices such as 0,2-7,9")]
    Part(String),
    /// A range runs backwards.
    #[error("the range `{0}-{1}` runs backwards; write {1}-{0}")]
    Reversed(u32, u32),
}

impl IndexRanges {
    /// Whether `index` lies in one of the ranges.
    pub fn contains(&self, index: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&index))
    }
}

impl FromStr for IndexRanges {
    type Err = ParseRangesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(ParseRangesError::Empty);
        }
        let part = |part: &str| {
            let bad = || ParseRangesError::Part(part.trim().to_owned());
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first = index(first).ok_or_else(bad)?;
            let last = index(last).ok_or_else(bad)?;
            if first > last { Err(ParseRangesError::Reversed(first, last)) } else { Ok((first, last)) }
        };
        text.split(',').map(part).collect::<Result<_, _>>().map(Self)
    }
}

/// Digits only: `u32::from_str` would take a plus sign.
fn index(text: &str) -> Option<u32> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for IndexRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_ends_of_a_range_are_included() {
        let ranges: IndexRanges = "0,2-4, 7".parse().unwrap();
        let held: Vec<u32> = (0..10).filter(|&index| ranges.contains(index)).collect();
        assert_eq!(held, [0, 2, 3, 4, 7]);
        assert_eq!(ranges.to_string(), "0,2-4,7");
        assert!("0-0".parse::<IndexRanges>().unwrap().contains(0));
    }

    #[test]
    fn bad_ranges_are_told_apart() {
        assert_eq!("".parse::<IndexRanges>(), Err(ParseRangesError::Empty));
        assert_eq!("7-3".parse::<IndexRanges>(), Err(ParseRangesError::Reversed(7, 3)));
        for text in ["0-", "-1", "0,,1", "1-2-3", "a", "+1", "4294967296", "0,"] {
            assert!(matches!(text.parse::<IndexRanges>(), Err(ParseRangesError::Part(_))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(parts in prop::collection::vec((0u32..300, 0u32..300), 1..6)) {
            let ranges = IndexRanges(parts.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect());
            prop_assert_eq!(ranges.to_string().parse::<IndexRanges>(), Ok(ranges));
        }
    }
}
