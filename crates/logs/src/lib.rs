//! Reads a session's output log ([`protocol::logs`]) while it is written, rotated, compressed and trimmed: its bytes by
//! their offset, where lines and times begin, and whether somebody still writes. Synchronous; shows nothing.

#![warn(missing_docs)]

mod lines;
mod reader;
mod times;
mod writer;

use std::io;
use std::path::Path;

pub use lines::last_lines;
pub use reader::Reader;
pub use times::{Times, begin_of, known_begin_of, offset_at};
pub use writer::{is_awaited, is_written, wait_for_writer};

/// The offsets of the first byte that is kept and of what will be written next; both 0 of a log that is not there.
///
/// # Errors
/// The files cannot be read.
pub fn bounds(dir: &Path) -> io::Result<(u64, u64)> {
    let extents = reader::extents(dir)?;
    Ok((extents.first().map_or(0, |extent| extent.0), extents.last().map_or(0, |extent| extent.1)))
}

#[cfg(test)]
mod tests;
