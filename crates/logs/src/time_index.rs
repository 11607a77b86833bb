//! Finds when bytes of a log were written, and the offset of a time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use process::log_writer::times::{self, TimeEntry};
use protocol::{Tag, Timestamp, logs, time};

use crate::log_reader::bounds;

/// The time index of a log, reread as it grows.
#[derive(Debug)]
pub struct Times {
    dir: PathBuf,
    /// Modification time and length of the index file when it was last read.
    version: Option<(SystemTime, u64)>,
    entries: Vec<TimeEntry>,
}

impl Times {
    /// Creates the index of the log in this directory; nothing is read yet.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), version: None, entries: Vec::new() }
    }

    /// Returns the time at which the byte at this offset was written, to about a second; `None` if it is not
    /// recorded any more.
    pub fn at(&mut self, offset: u64) -> Option<Timestamp> {
        self.reload();
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        Some(Timestamp(self.entries[..after].last()?.at))
    }

    /// Rereads the index file if it has changed.
    fn reload(&mut self) {
        let found = fs::metadata(self.dir.join(logs::TIMES));
        let found = found.and_then(|found| Ok((found.modified()?, found.len()))).ok();
        if found.is_some() && found != self.version {
            self.entries = times::read(&self.dir).unwrap_or_default();
            self.version = found;
        }
    }
}

/// Returns the offset after all bytes that are older than this time, in a log that ends at `end`; 0 if the
/// time is before the first recorded one.
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

/// Returns the offset at which the output of this incarnation begins; the end of the log if its writer has
/// not started.
pub fn start_offset(dir: &Path, tag: Tag) -> io::Result<u64> {
    // The end is read first, so that output written meanwhile is after it.
    let (_, end) = bounds(dir)?;
    Ok(recorded_start_offset(dir, tag)?.unwrap_or(end))
}

/// Like [`start_offset`]; `None` if the writer has not started, or its start is not recorded any more.
pub fn recorded_start_offset(dir: &Path, tag: Tag) -> io::Result<Option<u64>> {
    Ok(incarnation_start(&times::read(dir)?, tag))
}

/// The offset at which the output of this incarnation begins, if it is recorded.
pub(crate) fn incarnation_start(entries: &[TimeEntry], tag: Tag) -> Option<u64> {
    entries.iter().find(|entry| entry.tag == Some(tag)).map(|entry| entry.offset)
}
