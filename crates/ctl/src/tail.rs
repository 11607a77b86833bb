//! A session's output log: read from where one wants, and followed while it grows.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use logs::{Reader, Times};
use protocol::Timestamp;
use protocol::ids::Tag;
use protocol::reply::LogFiles;

use crate::error::Error;
use crate::show::clean::{Cleaner, Mode};
use crate::show::out;

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;
/// Pauses between two looks at a log: short after something came, longer while nothing does.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(200);

/// Where the bytes of a log go.
pub(crate) trait Sink {
    /// Takes a piece, which has this offset in the log.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&mut self, offset: u64, piece: &[u8]) -> Result<(), Error>;

    /// Nothing came for a moment.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn quiet(&mut self) -> Result<(), Error> {
        Ok(())
    }

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
pub(crate) struct Tail(Reader);

impl Tail {
    /// From the first byte.
    #[must_use]
    pub(crate) fn new(log: &LogFiles) -> Self {
        Self(Reader::new(log.dir.as_path(), 0))
    }

    /// Skips what is gone already, which is then not missed.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn skip_to_first(&mut self) -> Result<(), Error> {
        let (start, _) = self.bounds()?;
        self.skip_to(start);
        Ok(())
    }

    /// Skips what is older. What is not and is gone is told.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn skip_to_time(&mut self, at: Timestamp) -> Result<(), Error> {
        let (start, end) = self.bounds()?;
        let offset = logs::offset_at(self.0.dir(), at, end).map_err(|error| self.unreadable(&error))?;
        note_missed(start.saturating_sub(offset));
        self.skip_to(offset.max(start));
        Ok(())
    }

    /// Skips what is before the last so many lines, and says where they end.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn skip_to_last(&mut self, lines: u64) -> Result<u64, Error> {
        let (start, end) = logs::last_lines(self.0.dir(), lines).map_err(|error| self.unreadable(&error))?;
        self.skip_to(start);
        Ok(end)
    }

    /// Skips what earlier runs wrote.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn skip_to_run(&mut self, tag: Tag) -> Result<(), Error> {
        let begin = logs::begin_of(self.0.dir(), tag).map_err(|error| self.unreadable(&error))?;
        self.skip_to(begin);
        Ok(())
    }

    /// Where it goes on.
    #[must_use]
    pub(crate) fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// Where it ends now.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn end(&self) -> Result<u64, Error> {
        Ok(self.bounds()?.1)
    }

    /// Tells on standard error where what is kept, and is read from here, is not all that was written.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn note_gone(&self) -> Result<(), Error> {
        let (start, _) = self.bounds()?;
        if start > 0 && self.0.offset() <= start {
            out::note(&format!(
                "poolctl: {start} bytes of older output are gone; the first line may be a piece"
            ));
        }
        Ok(())
    }

    /// Skips what is before the last so many bytes.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn skip_to_last_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        let end = self.end()?;
        self.skip_to_bytes_before(end, bytes)
    }

    /// Skips what is more than so many bytes before this offset.
    ///
    /// # Errors
    /// As [`Tail::skip_to_first`].
    pub(crate) fn skip_to_bytes_before(&mut self, end: u64, bytes: u64) -> Result<(), Error> {
        let (start, _) = self.bounds()?;
        self.skip_to(end.saturating_sub(bytes).max(start));
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
        self.copy_until(sink, u64::MAX)
    }

    /// The same, up to this offset: a log that grows as fast as it is read has no end of its own.
    ///
    /// # Errors
    /// As [`Tail::copy`].
    pub(crate) fn copy_until(&mut self, sink: &mut dyn Sink, end: u64) -> Result<u64, Error> {
        let mut block = vec![0; BLOCK];
        let mut copied = 0;
        loop {
            let left =
                usize::try_from(end.saturating_sub(self.0.offset())).map_or(BLOCK, |left| left.min(BLOCK));
            // Nothing to be read into is taken for the end of a part: it would go on to the next, as fast as they come.
            if left == 0 {
                return Ok(copied);
            }
            let read = self.0.read(&mut block[..left]).map_err(|error| self.unreadable(&error))?;
            note_missed(self.0.take_missed());
            // Behind a gap it may be beyond the end.
            if read == 0 || self.0.offset() - read as u64 >= end {
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
            if quiet {
                sink.quiet()?;
            }
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
        logs::wait_for_writer(self.0.dir(), incarnation);
        self.copy(sink).map(drop)
    }

    fn skip_to(&mut self, offset: u64) {
        if offset > self.0.offset() {
            self.0 = Reader::new(self.0.dir(), offset);
        }
    }

    fn bounds(&self) -> Result<(u64, u64), Error> {
        logs::bounds(self.0.dir()).map_err(|error| self.unreadable(&error))
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

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Collected(Vec<u8>);

    impl Sink for Collected {
        fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
            self.0.extend_from_slice(piece);
            Ok(())
        }
    }

    #[test]
    fn nothing_is_lost_between_the_end_and_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let (mut tail, mut sink) = (Tail::new(&LogFiles { dir: dir.path().into() }), Collected::default());
        assert_eq!(tail.copy(&mut sink).unwrap(), 0, "a log that is not there yet is empty");
        let lock = File::create(dir.path().join(protocol::logs::LOCK)).unwrap();
        lock.lock_shared().unwrap();
        let tag = Tag([9; 16]);
        fs::write(dir.path().join(protocol::logs::TIMES), format!("5 0 {tag}\n")).unwrap();
        let mut file = File::create(dir.path().join(protocol::logs::CURRENT)).unwrap();
        file.write_all(b"one\n").unwrap();
        let (sender, over) = mpsc::channel();
        sender.send(Ok(7)).unwrap();
        assert_eq!(tail.follow(&mut sink, &over).unwrap(), 7);
        let late = thread::spawn(move || {
            file.write_all(b"two\n").unwrap();
            drop(lock);
        });
        tail.finish(&mut sink, Some(tag)).unwrap();
        assert_eq!(sink.0, b"one\ntwo\n");
        late.join().unwrap();
    }

    #[test]
    fn a_part_is_skipped_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(protocol::logs::part_name(100, false)), "one\n").unwrap();
        fs::write(dir.path().join(protocol::logs::CURRENT), "two\nthree\n").unwrap();
        let rest = |skip: fn(&mut Tail) -> Result<(), Error>| {
            let (mut tail, mut sink) =
                (Tail::new(&LogFiles { dir: dir.path().into() }), Collected::default());
            skip(&mut tail).unwrap();
            tail.copy(&mut sink).unwrap();
            String::from_utf8(sink.0).unwrap()
        };
        assert_eq!(rest(Tail::skip_to_first), "one\ntwo\nthree\n");
        assert_eq!(rest(|tail| tail.skip_to_last(1).map(drop)), "three\n");
        assert_eq!(rest(|tail| tail.skip_to_last_bytes(8)), "o\nthree\n");
    }
}
