//! Where lines of a log begin.

use std::io;
use std::path::Path;

use crate::reader::{Reader, extents};

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;

/// Where the last so many lines start, and where they end: the log may grow meanwhile. They start with the first byte that
/// is kept where there are not more. A newline at the very end ends the last line.
///
/// # Errors
/// The files cannot be read.
pub fn last_lines(dir: &Path, lines: u64) -> io::Result<(u64, u64)> {
    let extents = extents(dir)?;
    let (start, end) = (extents.first().map_or(0, |e| e.0), extents.last().map_or(0, |e| e.1));
    if lines == 0 {
        return Ok((end, end));
    }
    let mut left = lines;
    for extent in extents.iter().rev() {
        let mut newlines = 0;
        each_line_end(dir, *extent, &mut |after| {
            newlines += u64::from(after != end);
            true
        })?;
        if newlines < left {
            left -= newlines;
            continue;
        }
        let (mut first, mut more) = (start, newlines - left + 1);
        each_line_end(dir, *extent, &mut |after| {
            first = after;
            more -= 1;
            more > 0
        })?;
        return Ok((first, end));
    }
    Ok((start, end))
}

/// The offset behind each newline, until it is enough.
fn each_line_end(dir: &Path, (start, end): (u64, u64), visit: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
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
