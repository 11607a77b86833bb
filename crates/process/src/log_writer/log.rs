//! A log as one stream to write to: parts and limits are behind it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use protocol::logs;

use super::compress::Compressor;
use super::copy::write_fully;
use super::files::{Files, Parts};
use super::options::Options;
use super::times::{self, Entry, Marks};
use crate::file::id;

/// A line of its own on a terminal, too.
const RESUMED: &str = "\r\n[tmux-pool: the log writer was lost; output may be missing here]\r\n";

/// A log that is written to; others may write to it, or clear it, at the same time.
#[derive(Debug)]
pub(super) struct Log {
    files: Arc<Files>,
    options: Options,
    file: File,
    /// Which file that is.
    id: (u64, u64),
    /// The offset at which it begins.
    base: u64,
    /// The offset of the first byte that is still there.
    start: u64,
    marks: Marks,
    compressor: Compressor,
}

impl Log {
    /// Puts in order what an earlier writer left, and begins.
    pub(super) fn open(files: Files, options: &Options) -> io::Result<Self> {
        let files = Arc::new(files);
        let held = files.lock()?;
        files.tidy()?;
        let file = files.current()?;
        let mut log = Self {
            id: id(&file.metadata()?),
            file,
            base: 0,
            start: 0,
            marks: Marks::default(),
            compressor: Compressor::new(files.dir(), options.share()),
            files: Arc::clone(&files),
            options: options.clone(),
        };
        files.trim(options)?;
        let parts = log.look()?;
        let end = log.base + log.file.metadata()?.len();
        let begun = log.marks.begin((times::now(), end), options.tag);
        log.mark(&begun);
        if parts.0.iter().any(|part| !part.compressed && part.length > 0) {
            log.compress();
        }
        drop(held);
        if options.resumed {
            write_fully(&mut log, RESUMED.as_bytes());
        }
        Ok(log)
    }

    /// The input is over.
    pub(super) fn end(mut self) {
        let files = Arc::clone(&self.files);
        let Ok(_held) = files.lock() else { return };
        let last = self.marks.end();
        self.mark(&last);
        self.compressor.give_up();
    }

    fn look(&mut self) -> io::Result<Parts> {
        let parts = Parts::list(self.files.dir())?;
        self.start = parts.start();
        self.base = parts.end();
        Ok(parts)
    }

    fn mark(&self, entries: &[Entry]) {
        times::append(self.files.dir(), entries, self.start, self.options.times());
    }

    fn compress(&mut self) {
        if self.options.compress {
            self.compressor.wake();
        }
    }

    /// Goes on in the file that is written to now, should it be another one.
    fn follow(&mut self) -> io::Result<()> {
        if fs::metadata(self.files.path(logs::CURRENT)).is_ok_and(|found| id(&found) == self.id) {
            return Ok(());
        }
        let file = self.files.current()?;
        self.id = id(&file.metadata()?);
        self.file = file;
        self.look().map(drop)
    }

    /// The length of the file that is written to, and how much more it may have.
    fn room(&mut self) -> io::Result<(u64, u64)> {
        let (length, share) = (self.file.metadata()?.len(), self.options.share());
        if length < share {
            return Ok((length, share - length));
        }
        match self.rotate() {
            Ok(()) => Ok((0, share)),
            Err(_) => self.stretch(length).map(|room| (length, room)),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let file = self.files.rotate()?;
        self.id = id(&file.metadata()?);
        self.file = file;
        // Before anything is written: the parts may have more than their share only as long as the
        // file that is written to has nothing.
        let trimmed = self.files.trim(&self.options);
        self.look()?;
        self.compress();
        trimmed
    }

    /// There can be no other file: this one goes on, in place of the oldest parts.
    fn stretch(&mut self, length: u64) -> io::Result<u64> {
        let mut parts = Parts::list(self.files.dir())?;
        loop {
            let used = parts.size() + length;
            if let room @ 1.. = self.options.settled().saturating_sub(used) {
                return Ok(room);
            }
            if parts.0.len() < 2 || !self.files.drop_oldest(&mut parts)? {
                return Err(ErrorKind::StorageFull.into());
            }
            self.start = parts.start();
        }
    }
}

impl Write for Log {
    /// Writes as much as fits into one file.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let files = Arc::clone(&self.files);
        let _held = files.lock()?;
        self.follow()?;
        let (length, room) = self.room()?;
        let fitting = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let (now, offset) = (times::now(), self.base + length);
        let marks = self.marks.before(now, offset);
        self.mark(&marks);
        let written = match self.file.write(&bytes[..fitting]) {
            // The system lets files have less than their share.
            Err(error) if error.kind() == ErrorKind::FileTooLarge && length > 0 => {
                self.rotate()?;
                self.file.write(&bytes[..fitting])?
            }
            result => result?,
        };
        self.marks.after(now, self.base + self.file.metadata()?.len());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
