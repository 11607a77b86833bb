//! The files of a session's log, in `logs/` of its directory. One writer (`reaper log`) a running
//! incarnation appends; anybody may read. They outlive incarnations, daemons and releases.
//!
//! | file | what it holds |
//! |---|---|
//! | `output.log` | the newest bytes |
//! | `output.log.OFFSET` | an earlier part, whole, from this byte on (20 digits) |
//! | `output.log.OFFSET.gz` | the same, compressed; the last four bytes of a gzip file are the length of what is in it. Where the plain one is there too, that one counts |
//! | `output.times` | text, a line each: the time in milliseconds since the epoch, a blank, the offset that was the end of the log then; where an incarnation's writer begins, a blank and its tag follow. What cannot be read, or goes back in the log, is no line |
//! | `output.lock` | nothing: each writer holds a shared lock (`flock`) on it while it runs. Writers of earlier releases hold an exclusive one on `output.log` |
//! | `output.next`, `output.part`, `output.times.new` | what is being made and has no name yet |
//!
//! The offset of a byte is its number in all that was ever written, so it stays the same when parts are
//! rotated, compressed and removed. The offset at which `output.log` begins is the end of the newest part,
//! or 0 where there is none; there is always one once something was removed, if need be an empty one.
//!
//! Whoever changes anything holds an exclusive lock on the directory for that moment. Each change leaves the
//! files right after every single step: a part is `output.log` by another name, and once `output.log` is
//! another file than before (by its inode) it begins at another offset. So a reader that opens `output.log`,
//! lists the parts, and finds the same file there still, knows where each byte is.

/// The file that is written to.
pub const CURRENT: &str = "output.log";
/// Times and the offsets that belong to them.
pub const TIMES: &str = "output.times";
/// What tells whether there is a writer.
pub const LOCK: &str = "output.lock";
/// The file that will be written to next.
pub const NEXT: &str = "output.next";
/// A part that is being compressed.
pub const COMPRESSING: &str = "output.part";
/// The times that are kept of all that there are.
pub const NEW_TIMES: &str = "output.times.new";
/// What all files of a log may have together where nothing is said, in bytes: months of a busy agent's
/// output, compressed, and still little beside a thousand sessions.
pub const MAX_SIZE: u64 = 32 << 20;
/// Earlier parts that are kept where nothing is said.
pub const KEEP: u32 = 4;
/// Digits of an offset in a name.
pub const OFFSET_DIGITS: usize = 20;

/// The name of the part that begins at this offset.
#[must_use]
pub fn part_name(offset: u64, compressed: bool) -> String {
    format!("{CURRENT}.{offset:0OFFSET_DIGITS$}{}", if compressed { ".gz" } else { "" })
}

/// The offset at which a part of this name begins, and whether it is compressed; `None` for any other file.
#[must_use]
pub fn parse_part(name: &str) -> Option<(u64, bool)> {
    let rest = name.strip_prefix(CURRENT)?.strip_prefix('.')?;
    let (digits, compressed) = match rest.strip_suffix(".gz") {
        Some(digits) => (digits, true),
        None => (rest, false),
    };
    let plain = digits.len() == OFFSET_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().map(|offset| (offset, compressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_offset() {
        assert_eq!(part_name(7, false), "output.log.00000000000000000007");
        for (offset, compressed) in [(0, false), (u64::MAX, true), (4096, true)] {
            assert_eq!(parse_part(&part_name(offset, compressed)), Some((offset, compressed)));
        }
        for other in [CURRENT, TIMES, "output.log.7", "output.log.0000000000000000000x", "x.gz"] {
            assert_eq!(parse_part(other), None, "{other}");
        }
    }
}
