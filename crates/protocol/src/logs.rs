//! The log files of a session, in `logs/` of its directory. Each running incarnation has one writer (`reaper
//! log`), which appends; any process may read. The files outlive incarnations, daemons and releases.
//!
//! - `output.log`: the newest bytes.
//! - `output.log.OFFSET`: an earlier part, complete, which begins at this offset (20 digits).
//! - `output.log.OFFSET.gz`: the same part, compressed. The last four bytes of a gzip file are the length of
//!   its content. If both forms exist, the uncompressed one counts.
//! - `output.times`: lines of text, each with a time in milliseconds since the epoch, a blank, and the offset
//!   of the log's end at that time. On the first line of an incarnation's writer, a blank and the
//!   incarnation's tag follow. A line that cannot be parsed, or whose offset goes back, is ignored.
//! - `output.lock`: a `+` of each writer that began, and a `.` of each that has written all of its input; a writer that
//!   finds no other one empties it first. Each holds a shared lock (`flock`) on it while it runs. Writers of earlier
//!   releases hold an exclusive lock on `output.log`.
//! - `stderr/`: the log of the program's standard error, in the same form, where it is kept apart. The
//!   session's init writes it.
//! - `output.next`, `output.part`, `output.times.new`: unfinished files that have no final name yet.
//!
//! The offset of a byte counts all bytes ever written before it, so it does not change when parts are
//! rotated, compressed or removed. `output.log` begins at the end of the newest part, or at 0 if there is
//! none. After a removal at least one part remains, if need be an empty one.
//!
//! A process that prints the log as it comes (`poolctl run`) holds a shared lock on the session's directory: poold does
//! not remove the session by itself meanwhile.
//!
//! A process that changes the files holds an exclusive lock on `logs/` meanwhile. The files are
//! consistent after every single step of a change: a part is the renamed `output.log`, and an `output.log`
//! with another inode than before begins at another offset. A reader that opens `output.log`, lists the parts
//! and then still finds the same file there therefore knows the offset of each byte.

/// The file being written.
pub const CURRENT: &str = "output.log";
/// The file of times and their offsets.
pub const TIMES: &str = "output.times";
/// The file whose lock shows that a writer runs.
pub const LOCK: &str = "output.lock";
/// The directory of the log of the program's standard error.
pub const STDERR: &str = "stderr";
/// The next [`CURRENT`] during a rotation.
pub const NEXT: &str = "output.next";
/// A part during its compression.
pub const COMPRESSING: &str = "output.part";
/// The next [`TIMES`] while it is shortened.
pub const NEW_TIMES: &str = "output.times.new";
/// The beginning of each line that the writer itself puts into a log, where output is missing.
pub const NOTICE: &str = "\r\n[tmux-pool: ";
/// Default maximum size of all files of a log together, in bytes. Compressed, that is months of a busy
/// agent's output, and still little for a thousand sessions.
pub const MAX_SIZE: u64 = 32 << 20;
/// Default number of rotated parts to keep.
pub const KEEP: u32 = 4;
/// Number of digits of an offset in a file name.
const OFFSET_DIGITS: usize = 20;

/// Returns the name of the part that begins at `offset`.
pub fn part_name(offset: u64, compressed: bool) -> String {
    format!("{CURRENT}.{offset:0OFFSET_DIGITS$}{}", if compressed { ".gz" } else { "" })
}

/// Returns the offset at which the part begins and whether it is compressed; `None` if the name is not that
/// of a part.
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
