//! A digest that tells a repeated request from a different one. It need not resist an adversary: callers are
//! the same user.

/// FNV-1a, 64 bit. It never changes, because digests are stored.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_algorithm_never_changes() {
        assert_eq!(super::digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::digest(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
