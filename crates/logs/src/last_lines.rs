//! Finds the last lines of a log.

use std::io;
use std::path::Path;

use crate::log_reader::{Reader, extents};

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;

/// Returns the start offset of the last `lines` lines, and their end, because the log may grow meanwhile. If
/// there are fewer lines they start at the first byte that is kept. A newline at the very end belongs to the
/// last line.
pub fn last_lines(dir: &Path, lines: u64) -> io::Result<(u64, u64)> {
    let extents = extents(dir)?;
    let (start, end) = (extents.first().map_or(0, |e| e.0), extents.last().map_or(0, |e| e.1));
    if lines == 0 {
        return Ok((end, end));
    }
    let mut left = lines;
    for extent in extents.iter().rev() {
        let mut newlines = 0;
        visit_newlines(dir, *extent, &mut |after| {
            newlines += u64::from(after != end);
            true
        })?;
        if newlines < left {
            left -= newlines;
            continue;
        }
        let (mut first, mut more) = (start, newlines - left + 1);
        visit_newlines(dir, *extent, &mut |after| {
            first = after;
            more -= 1;
            more > 0
        })?;
        return Ok((first, end));
    }
    Ok((start, end))
}

/// Calls `visit` with the offset after each newline, until it returns false.
fn visit_newlines(
    dir: &Path,
    (start, end): (u64, u64),
    visit: &mut dyn FnMut(u64) -> bool,
) -> io::Result<()> {
    let mut reader = Reader::new(dir, start);
    let mut block = vec![0; BLOCK];
    while reader.offset() < end {
        let read = reader.read(&mut block)?;
        let first = reader.offset() - read as u64;
        if read == 0 {
            break;
        }
        let ends =
            block[..read].iter().zip(first + 1..).filter(|(byte, after)| **byte == b'\n' && *after <= end);
        for (_, after) in ends {
            if !visit(after) {
                return Ok(());
            }
        }
    }
    Ok(())
}
