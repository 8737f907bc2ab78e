//! Values that are one word out of a few; an enum's words stand here and nowhere else.

use std::fmt;

use super::hint::closest;
use super::types::{AllocationPolicy, DeviceType, FunctionType, LinkHealth, UacceView, VfioMode};
use crate::model::LinkType;
use crate::model::VdpaType;

/// An enum that is written as a word.
pub(super) trait Words: Copy + 'static {
    /// Every word and what it stands for.
    const WORDS: &'static [(&'static str, Self)];

    fn words() -> Vec<&'static str> {
        Self::WORDS.iter().map(|&(word, _)| word).collect()
    }

    /// Words match exactly, as in Go: only keys are folded.
    fn parse(text: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|&(_, value)| value).ok_or_else(|| {
            let words = Self::words();
            match closest(text, words.iter().copied()) {
                Some(word) => format!("`{text}` is unknown; did you mean `{word}`?"),
                None => format!("`{text}` is unknown; write one of {}", words.join(", ")),
            }
        })
    }
}

impl Words for DeviceType {
    const WORDS: &'static [(&'static str, Self)] = &[
        (Self::NetDevice.as_str(), Self::NetDevice),
        (Self::Accelerator.as_str(), Self::Accelerator),
        (Self::AuxNetDevice.as_str(), Self::AuxNetDevice),
    ];
}

impl Words for LinkType {
    const WORDS: &'static [(&'static str, Self)] =
        &[("ether", Self::Ether), ("infiniband", Self::Infiniband)];
}

impl Words for VdpaType {
    const WORDS: &'static [(&'static str, Self)] = &[("vhost", Self::Vhost), ("virtio", Self::Virtio)];
}

impl Words for FunctionType {
    const WORDS: &'static [(&'static str, Self)] = &[("pf", Self::Pf), ("vf", Self::Vf), ("sf", Self::Sf)];
}

impl Words for AllocationPolicy {
    const WORDS: &'static [(&'static str, Self)] =
        &[("numa", Self::Numa), ("packed", Self::Packed), ("spread", Self::Spread), ("lru", Self::Lru)];
}

impl fmt::Display for AllocationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::WORDS.iter().find(|(_, value)| value == self).map_or("", |(word, _)| word))
    }
}

impl Words for LinkHealth {
    const WORDS: &'static [(&'static str, Self)] =
        &[("carrier", Self::Carrier), ("ignore", Self::Ignore), ("admin", Self::Admin)];
}

impl Words for VfioMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("group", Self::Group), ("iommufd", Self::Iommufd), ("both", Self::Both)];
}

impl Words for UacceView {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("filtered", Self::Filtered), ("host", Self::Host)];
}
