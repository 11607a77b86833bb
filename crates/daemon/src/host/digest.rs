//! A digest that tells a repeat from something else. Not against an adversary: it is the same user.

/// FNV-1a, 64 bit: fixed for ever, because digests are stored.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_fixed_for_ever() {
        assert_eq!(super::digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::digest(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
