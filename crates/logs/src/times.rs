//! When what is in a log was written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use process::log_writer::times::{self, Entry};
use protocol::ids::Tag;
use protocol::{Timestamp, logs, time};

/// The times of a log that may still grow.
#[derive(Debug)]
pub struct Times {
    dir: PathBuf,
    seen: Option<(SystemTime, u64)>,
    entries: Vec<Entry>,
}

impl Times {
    /// Of the log in this directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), seen: None, entries: Vec::new() }
    }

    /// When the byte at this offset was written, to about a second; `None` where nobody knows any more.
    pub fn at(&mut self, offset: u64) -> Option<Timestamp> {
        self.look();
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        Some(Timestamp(self.entries[..after].last()?.at))
    }

    /// Reads them again, if there are others than before. Without times there are none.
    fn look(&mut self) {
        let found = fs::metadata(self.dir.join(logs::TIMES));
        let found = found.and_then(|found| Ok((found.modified()?, found.len()))).ok();
        if found.is_some() && found != self.seen {
            self.entries = times::read(&self.dir).unwrap_or_default();
            self.seen = found;
        }
    }
}

/// The offset behind everything that is older than this, in a log that ends at `end`; 0 where that is before all that
/// is known.
///
/// # Errors
/// The times cannot be read.
pub fn offset_at(dir: &Path, at: Timestamp, end: u64) -> io::Result<u64> {
    let entries = times::read(dir)?;
    let last = entries.iter().rposition(|entry| entry.at <= at.0);
    let written = fs::metadata(dir.join(logs::CURRENT)).and_then(|found| found.modified());
    let written = written.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    if last.is_some_and(|last| last + 1 == entries.len()) && written.is_some_and(|w| time::millis(w) < at.0) {
        return Ok(end);
    }
    Ok(last.map_or(0, |last| entries[last].offset))
}

/// Where the output of this incarnation begins: the end, where its writer has not begun.
///
/// # Errors
/// The log cannot be read.
pub fn begin_of(dir: &Path, tag: Tag) -> io::Result<u64> {
    // The end first: what is written meanwhile is behind it.
    let (_, end) = crate::bounds(dir)?;
    Ok(known_begin_of(dir, tag)?.unwrap_or(end))
}

/// The same; none where its writer has not begun, or that is not on record any more.
///
/// # Errors
/// The log cannot be read.
pub fn known_begin_of(dir: &Path, tag: Tag) -> io::Result<Option<u64>> {
    let begun = times::read(dir)?.into_iter().find(|entry| entry.tag == Some(tag));
    Ok(begun.map(|entry| entry.offset))
}
