//! The presence of writers. Each writer holds a lock while it runs, and records its beginning and its end in the file
//! of that lock. A writer that was killed, lost with the machine, or left without disk space has recorded no end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use protocol::logs;

use super::access::{is_locked, open_file};
use super::directory::LogDir;

/// The bytes of the file: each writer appends one when it begins, and one when it ends.
const BEGUN: u8 = b'+';
const ENDED: u8 = b'.';

/// Maximum number of bytes that are read. The file stays short, because a writer that is alone starts it anew.
const LENGTH_MAX: u64 = 4096;

/// A running writer, until it is dropped.
#[derive(Debug)]
pub(super) struct Presence(File);

impl Presence {
    /// Announces a writer; `is_alone` is true if no other one runs. On a full disk nothing is recorded, and nothing
    /// counts as lost.
    pub(super) fn announce(files: &LogDir, is_alone: bool) -> io::Result<Self> {
        let mut file = files.announce_writer()?;
        if is_alone {
            drop(file.set_len(0));
        }
        drop(file.write_all(&[BEGUN]));
        Ok(Self(file))
    }

    /// Tells that the writer has written all of its input, or a notice in place of what is missing.
    pub(super) fn tell_end(&mut self) {
        drop(self.0.write_all(&[ENDED]));
    }
}

/// True if a writer of this log is running.
///
/// # Errors
/// Its files cannot be opened, so one may be running.
pub fn find_writer(dir: &Path) -> io::Result<bool> {
    Ok(is_locked(&dir.join(logs::LOCK))? || is_locked(&dir.join(logs::CURRENT))?)
}

/// True if a writer of this log is running, or may be: its files cannot be opened.
pub fn has_writer(dir: &Path) -> bool {
    find_writer(dir).unwrap_or(true)
}

/// True if no writer of this log is running, and one has ended without writing all of its input, or a notice of what is
/// missing: output may be missing at the end.
pub fn is_writer_lost(dir: &Path) -> bool {
    let mut told = Vec::new();
    let read = open_file(&dir.join(logs::LOCK)).and_then(|file| file.take(LENGTH_MAX).read_to_end(&mut told));
    let count = |wanted: u8| told.iter().filter(|byte| **byte == wanted).count();
    read.is_ok() && count(BEGUN) > count(ENDED) && !has_writer(dir)
}
