//! A session's output log: read from where one wants, and followed while it grows.

mod source;
mod times;

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use process::log_writer;
use protocol::Timestamp;
use protocol::ids::Tag;
use protocol::reply::LogFiles;

use crate::error::Error;
use crate::show::clean::{Cleaner, Mode};
use crate::show::out;

use source::Source;
pub(crate) use times::Times;

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;
/// Pauses between two looks at a log: short after something came, longer while nothing does.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(200);
/// How long the log's writer may take to begin, and to write out what a program left behind.
const WRITER_LIMIT: Duration = Duration::from_secs(2);

/// Where the bytes of a log go.
pub(crate) trait Sink {
    /// Takes a piece, which has this offset in the log.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&mut self, offset: u64, piece: &[u8]) -> Result<(), Error>;

    /// Nothing follows.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Standard output, cleaned.
#[derive(Debug)]
pub(crate) struct Cleaned(pub Cleaner);

impl Cleaned {
    /// As output is shown: harmless on a terminal, with plain line ends in a pipe.
    #[must_use]
    pub(crate) fn new(terminal: bool) -> Self {
        Self(Cleaner::new(if terminal { Mode::Safe } else { Mode::Plain }))
    }
}

impl Sink for Cleaned {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        out::bytes(&self.0.clean(piece))
    }
}

/// A log as one stream of bytes. There may be nothing yet.
#[derive(Debug)]
pub(crate) struct Tail(Source);

impl Tail {
    /// From the first byte.
    #[must_use]
    pub(crate) fn new(log: &LogFiles) -> Self {
        Self(Source::new(log.dir.as_path(), 0))
    }

    /// Skips what is gone already, which is then not missed.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn skip_to_first(&mut self) -> Result<(), Error> {
        let start = self.extents()?.first().map_or(0, |extent| extent.0);
        self.skip_to(start);
        Ok(())
    }

    /// Skips what is older. What is not and is gone is told.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn skip_to_time(&mut self, at: Timestamp) -> Result<(), Error> {
        let extents = self.extents()?;
        let (start, end) = (extents.first().map_or(0, |e| e.0), extents.last().map_or(0, |e| e.1));
        let offset = times::offset_at(self.0.dir(), at, end).map_err(|error| self.unreadable(&error))?;
        note_missed(start.saturating_sub(offset));
        self.skip_to(offset.max(start));
        Ok(())
    }

    /// Skips what is before the last so many lines.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn skip_to_last(&mut self, lines: u64) -> Result<(), Error> {
        let extents = self.extents()?;
        let (start, end) = (extents.first().map_or(0, |e| e.0), extents.last().map_or(0, |e| e.1));
        let offset = start_of_last(self.0.dir(), &extents, lines).map_err(|error| self.unreadable(&error))?;
        self.skip_to(if lines == 0 { end } else { offset.unwrap_or(start) });
        Ok(())
    }

    /// When which byte was written.
    #[must_use]
    pub(crate) fn times(&self) -> Times {
        Times::new(self.0.dir())
    }

    /// Copies what is there; how many bytes that were.
    ///
    /// # Errors
    /// The log cannot be read, or the sink not written.
    pub(crate) fn copy(&mut self, sink: &mut dyn Sink) -> Result<u64, Error> {
        let mut block = vec![0; BLOCK];
        let mut copied = 0;
        loop {
            let read = self.0.read(&mut block).map_err(|error| self.unreadable(&error))?;
            note_missed(self.0.take_missed());
            if read == 0 {
                return Ok(copied);
            }
            copied += read as u64;
            sink.write(self.0.offset() - read as u64, &block[..read])?;
        }
    }

    /// Copies what comes until it is over.
    ///
    /// # Errors
    /// As [`Tail::copy`], and what was sent instead of a value.
    pub(crate) fn follow<T>(
        &mut self,
        sink: &mut dyn Sink,
        over: &Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut pause = SHORT_PAUSE;
        loop {
            let quiet = self.copy(sink)? == 0;
            pause = if quiet { (pause * 2).min(LONG_PAUSE) } else { SHORT_PAUSE };
            match over.recv_timeout(if quiet { pause } else { Duration::ZERO }) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::failed("nobody waits for the end any more"));
                }
            }
        }
    }

    /// Copies the rest of a log whose program is over: everything, once the writer of its last
    /// incarnation has let go of it.
    ///
    /// # Errors
    /// As [`Tail::copy`].
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink, incarnation: Option<Tag>) -> Result<(), Error> {
        wait_for_writer(self.0.dir(), incarnation);
        self.copy(sink).map(drop)
    }

    fn skip_to(&mut self, offset: u64) {
        if offset > self.0.offset() {
            self.0 = Source::new(self.0.dir(), offset);
        }
    }

    fn extents(&self) -> Result<Vec<(u64, u64)>, Error> {
        source::extents(self.0.dir()).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &io::Error) -> Error {
        Error::failed(format!("cannot read the log in {}: {error}", self.0.dir().display()))
    }
}

/// Tells on standard error how much of what was to be read is not there any more.
fn note_missed(bytes: u64) {
    if bytes > 0 {
        out::note(&format!("poolctl: {bytes} bytes are gone (cleared, or over the size limit)"));
    }
}

/// Where the last so many lines start; `None` where there are not more. A newline at the very end ends
/// the last line.
fn start_of_last(dir: &Path, extents: &[(u64, u64)], lines: u64) -> io::Result<Option<u64>> {
    let end = extents.last().map_or(0, |extent| extent.1);
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
        let (mut start, mut more) = (None, newlines - left + 1);
        each_line_end(dir, *extent, &mut |after| {
            start = Some(after);
            more -= 1;
            more > 0
        })?;
        return Ok(start);
    }
    Ok(None)
}

/// The offset behind each newline, until it is enough.
fn each_line_end(dir: &Path, (start, end): (u64, u64), visit: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
    let mut source = Source::new(dir, start);
    let mut block = vec![0; BLOCK];
    while source.offset() < end {
        let read = source.read(&mut block)?;
        let first = source.offset() - read as u64;
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

/// Waits until the writer is done, which may not even have begun: a program can be faster than it.
fn wait_for_writer(dir: &Path, incarnation: Option<Tag>) {
    let deadline = Instant::now() + WRITER_LIMIT;
    while !is_written(dir, incarnation) && Instant::now() < deadline {
        thread::sleep(SHORT_PAUSE);
    }
}

/// Whether the writer of this incarnation has begun, and none is there any more.
fn is_written(dir: &Path, incarnation: Option<Tag>) -> bool {
    let entries = || log_writer::times::read(dir).unwrap_or_default();
    let begun = incarnation.is_none_or(|tag| entries().iter().any(|entry| entry.tag == Some(tag)));
    begun && !log_writer::has_writer(dir)
}

#[cfg(test)]
mod tests;
