//! A hash for names on disk.

/// FNV-1a of 64 bits: the same in every version of the plugin, unlike the standard library's hashers.
pub fn stable_hash(text: &str) -> u64 {
    stable_hash_on(0xcbf2_9ce4_8422_2325, text.as_bytes())
}

/// Goes on from the hash of what came before; that of nothing is `stable_hash("")`.
pub fn stable_hash_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_disk_never_change() {
        assert_eq!(stable_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable_hash("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
