//! The log as one output stream, which rotates and trims its files as it is written.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::SystemTime;

use protocol::logs;

use super::compress::Compressor;
use super::copy::write_fully;
use super::directory::LogDir;
use super::log_parts::Parts;
use super::times::{self, TimeEntry, TimeRecorder};
use super::writer_options::WriterOptions;
use crate::runtime::untrusted_file::id;

/// The rest of the notice that an earlier writer was lost; a separate line on a terminal as well.
const RESUMED: &str = "the log writer was lost; output may be missing here]\r\n";

/// A log that is open for writing. Other processes may write to it, or clear it, at the same time.
#[derive(Debug)]
pub(super) struct RotatingLog {
    files: Arc<LogDir>,
    options: WriterOptions,
    /// The current file.
    file: File,
    /// Device and inode of the current file.
    id: (u64, u64),
    /// Offset at which the current file begins.
    base: u64,
    /// Offset of the first byte that is kept.
    start: u64,
    times: TimeRecorder,
    compressor: Compressor,
}

impl RotatingLog {
    /// Cleans up after an earlier writer, and opens the log.
    pub(super) fn open(files: LogDir, options: &WriterOptions) -> io::Result<Self> {
        let files = Arc::new(files);
        let lock = files.lock()?;
        files.remove_unfinished()?;
        let file = files.current()?;
        let mut log = Self {
            id: id(&file.metadata()?),
            file,
            base: 0,
            start: 0,
            times: TimeRecorder::default(),
            compressor: Compressor::new(files.dir(), options.max_file_size()),
            files: Arc::clone(&files),
            options: options.clone(),
        };
        files.trim(options)?;
        let parts = log.list_parts()?;
        let end = log.base + log.file.metadata()?.len();
        times::cut(files.dir(), end);
        let begin = log.times.begin((times::now(), end), options.tag);
        log.append_times(&begin);
        if parts.0.iter().any(|part| !part.compressed && part.length > 0) {
            log.compress();
        }
        drop(lock);
        if options.resumed {
            write_fully(&mut log, format!("{}{RESUMED}", logs::NOTICE).as_bytes());
        }
        Ok(log)
    }

    /// Finishes the log at the end of the input.
    pub(super) fn finish(mut self) {
        let files = Arc::clone(&self.files);
        let Ok(_lock) = files.lock() else { return };
        let last = self.times.end();
        self.append_times(&last);
        self.compressor.abort();
    }

    /// Lists the parts, and updates the offsets from them.
    fn list_parts(&mut self) -> io::Result<Parts> {
        let parts = Parts::list(self.files.dir())?;
        self.start = parts.start();
        self.base = parts.end();
        Ok(parts)
    }

    fn append_times(&self, entries: &[TimeEntry]) {
        times::append(self.files.dir(), entries, self.start, self.options.max_times_size());
    }

    fn compress(&mut self) {
        if self.options.compress {
            self.compressor.wake();
        }
    }

    /// Reopens the current file, if another process has rotated it.
    fn follow(&mut self) -> io::Result<()> {
        if fs::metadata(self.files.path(logs::CURRENT)).is_ok_and(|found| id(&found) == self.id) {
            return Ok(());
        }
        let file = self.files.current()?;
        self.id = id(&file.metadata()?);
        self.file = file;
        self.list_parts().map(drop)
    }

    /// Returns the length of the current file and the number of bytes that still fit into it; rotates if it
    /// is full.
    fn room(&mut self) -> io::Result<(u64, u64)> {
        let (length, max_size) = (self.file.metadata()?.len(), self.options.max_file_size());
        if length < max_size {
            return Ok((length, max_size - length));
        }
        match self.rotate() {
            Ok(()) => Ok((0, max_size)),
            Err(_) => {
                // The new file may be there, and only an old one not removed.
                let length = self.file.metadata()?.len();
                self.extend_current(length).map(|room| (length, room))
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let file = self.files.rotate()?;
        self.id = id(&file.metadata()?);
        self.file = file;
        // Before anything is written: the parts may exceed their limit only while the current file is empty.
        let trimmed = self.files.trim(&self.options);
        self.list_parts()?;
        self.compress();
        trimmed
    }

    /// Lets the current file grow beyond its limit, because a new one cannot be created; drops the oldest
    /// parts instead. Returns the number of bytes that fit. If it is unknown how large the parts are, the file may grow
    /// to twice its limit.
    fn extend_current(&mut self, length: u64) -> io::Result<u64> {
        let mut parts = match Parts::list(self.files.dir()) {
            Ok(parts) => parts,
            Err(error) => {
                let room = (2 * self.options.max_file_size()).saturating_sub(length);
                return if room > 0 { Ok(room) } else { Err(error) };
            }
        };
        loop {
            let used = parts.size() + length;
            if let room @ 1.. = self.options.max_size_without_copy().saturating_sub(used) {
                return Ok(room);
            }
            if parts.0.len() < 2 || !self.files.drop_oldest(&mut parts)? {
                return Err(ErrorKind::StorageFull.into());
            }
            self.start = parts.start();
        }
    }
}

impl Write for RotatingLog {
    /// Writes as many bytes as fit into the current file.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let files = Arc::clone(&self.files);
        let _lock = files.lock()?;
        self.follow()?;
        let (length, room) = self.room()?;
        let fitting = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let (now, offset) = (times::now(), self.base + length);
        let is_cut = self.times.is_beyond(offset) && times::cut(self.files.dir(), offset);
        let entries = match is_cut {
            true => self.times.begin((now, offset), self.options.tag),
            false => self.times.before_write(now, offset),
        };
        self.append_times(&entries);
        let written = match self.file.write(&bytes[..fitting]) {
            // The system's file size limit is below the log's.
            Err(error) if error.kind() == ErrorKind::FileTooLarge && length > 0 => {
                self.rotate()?;
                self.file.write(&bytes[..fitting])?
            }
            Err(error) => {
                // The time of the last output, from which the daemon tells whether the program is idle.
                drop(self.file.set_modified(SystemTime::now()));
                return Err(error);
            }
            Ok(length) => length,
        };
        self.times.after_write(now, self.base + self.file.metadata()?.len());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
