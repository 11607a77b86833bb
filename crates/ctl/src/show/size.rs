//! Sizes in bytes as text.

/// The units above a byte, each 1,024 times the previous one.
const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];

/// Formats a size in the largest unit, rounded down, with one decimal below 10: `512B`, `1.5M`, `120M`.
pub(crate) fn short(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    let (whole, part, unit) = (tenths / 10, tenths % 10, UNITS[unit]);
    if whole < 10 && part > 0 { format!("{whole}.{part}{unit}") } else { format!("{whole}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_unit_that_suits_it() {
        let sizes = [0, 1023, 1024, 1536, 10 << 20, (2 << 30) - 1, 2 << 30, 3 << 29].map(short);
        assert_eq!(sizes, ["0B", "1023B", "1K", "1.5K", "10M", "1.9G", "2G", "1.5G"]);
        assert_eq!(short(u64::MAX), "16383P");
    }
}
