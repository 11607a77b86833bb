//! A digest that distinguishes contents. It need not withstand forgery: all who write them are the same user.

/// FNV-1a of 64 bits. It never changes, because digests are stored.
pub fn digest<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes
        .into_iter()
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
