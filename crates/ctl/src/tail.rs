//! Reads a session's output log from any position, and follows it while it grows.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use logs::{Reader, Times};
use protocol::reply::LogFiles;
use protocol::{Backoff, Tag, Timestamp};

use crate::show::out;
use crate::{Error, poll};
use logs::clean::{Cleaner, Mode};

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;
/// The shortest and the longest pause before the log is read again; it doubles while the log does not grow.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(200);

/// A destination for the bytes of a log.
pub(crate) trait Sink {
    /// Writes a piece that begins at this offset of the log.
    fn write(&mut self, offset: u64, piece: &[u8]) -> Result<(), Error>;

    /// Called while the log does not grow.
    fn quiet(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Called at the end of the log.
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Standard output, without control sequences.
#[derive(Debug)]
pub(crate) struct CleanOutput(pub Cleaner);

impl CleanOutput {
    /// Harmless on a terminal, with plain line ends in a pipe.
    pub(crate) fn new(terminal: bool) -> Self {
        Self(Cleaner::new(if terminal { Mode::Safe } else { Mode::Plain }))
    }
}

impl Sink for CleanOutput {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        out::bytes(&self.0.clean(piece))
    }

    fn quiet(&mut self) -> Result<(), Error> {
        poll::check_reader()
    }
}

/// A log as one stream of bytes. It need not exist yet.
#[derive(Debug)]
pub(crate) struct Tail {
    reader: Reader,
    /// When the time of the command is over.
    deadline: Option<Instant>,
}

impl Tail {
    /// A tail that begins at the first byte.
    pub(crate) fn new(log: &LogFiles) -> Self {
        Self { reader: Reader::new(log.dir.as_path(), 0), deadline: None }
    }

    /// This tail, which ends with an error once this time is over.
    pub(crate) fn within(self, limit: Option<Duration>) -> Self {
        Self { deadline: limit.and_then(|limit| Instant::now().checked_add(limit)), ..self }
    }

    /// Skips what was already deleted, without a note about it.
    pub(crate) fn skip_to_first(&mut self) -> Result<(), Error> {
        let (start, _) = self.bounds()?;
        self.skip_to(start);
        Ok(())
    }

    /// Skips what is older, and notes on standard error how much of the rest was deleted.
    pub(crate) fn skip_to_time(&mut self, at: Timestamp) -> Result<(), Error> {
        let (start, end) = self.bounds()?;
        let offset = logs::offset_at(self.reader.dir(), at, end).map_err(|error| self.unreadable(&error))?;
        note_missed(start.saturating_sub(offset));
        self.skip_to(offset.max(start));
        Ok(())
    }

    /// Skips everything before the last lines, and returns their end.
    pub(crate) fn skip_to_last(&mut self, lines: u64) -> Result<u64, Error> {
        let (start, end) =
            logs::last_lines(self.reader.dir(), lines).map_err(|error| self.unreadable(&error))?;
        self.skip_to(start);
        Ok(end)
    }

    /// Skips the output of earlier runs.
    pub(crate) fn skip_to_run(&mut self, tag: Tag) -> Result<(), Error> {
        let begin = logs::start_offset(self.reader.dir(), tag).map_err(|error| self.unreadable(&error))?;
        self.skip_to(begin);
        Ok(())
    }

    /// The offset of the next byte to read.
    pub(crate) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// The present end of the log.
    pub(crate) fn end(&self) -> Result<u64, Error> {
        Ok(self.bounds()?.1)
    }

    /// Notes on standard error if the output before the next byte was deleted.
    pub(crate) fn note_gone(&self) -> Result<(), Error> {
        let (start, _) = self.bounds()?;
        if start > 0 && self.reader.offset() <= start {
            out::note(&format!(
                "poolctl: {start} bytes of older output were deleted; the first line may be incomplete"
            ));
        }
        Ok(())
    }

    /// Skips everything before the last bytes.
    pub(crate) fn skip_to_last_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        let end = self.end()?;
        self.skip_to_bytes_before(end, bytes)
    }

    /// Skips everything that is more than this many bytes before this offset.
    pub(crate) fn skip_to_bytes_before(&mut self, end: u64, bytes: u64) -> Result<(), Error> {
        let (start, _) = self.bounds()?;
        self.skip_to(end.saturating_sub(bytes).max(start));
        Ok(())
    }

    /// The times at which the bytes were written.
    pub(crate) fn times(&self) -> Times {
        Times::new(self.reader.dir())
    }

    /// Copies up to this offset, and returns the length. The offset is fixed, because a log that grows as fast as it is
    /// read has no end.
    pub(crate) fn copy_until(&mut self, sink: &mut dyn Sink, end: u64) -> Result<u64, Error> {
        let mut copied = 0;
        loop {
            match self.copy_block(sink, end)? {
                0 => return Ok(copied),
                read => copied += read,
            }
        }
    }

    /// Copies the next block up to this offset, and returns its length; 0 at the end.
    fn copy_block(&mut self, sink: &mut dyn Sink, end: u64) -> Result<u64, Error> {
        if self.deadline.is_some_and(|at| Instant::now() >= at) {
            return Err(Error::timeout("timed out"));
        }
        let left =
            usize::try_from(end.saturating_sub(self.reader.offset())).map_or(BLOCK, |left| left.min(BLOCK));
        // An empty buffer would read as the end of a file, and move on to the next one.
        if left == 0 {
            return Ok(0);
        }
        let mut block = vec![0; left];
        let read = self.reader.read(&mut block).map_err(|error| self.unreadable(&error))?;
        note_missed(self.reader.take_missed());
        let offset = self.reader.offset() - read as u64;
        if offset >= end {
            // A gap in the log reaches beyond the end that is asked for. This block is put back, for a caller that
            // follows the log.
            self.reader = Reader::new(self.reader.dir(), offset);
            return Ok(0);
        }
        if read > 0 {
            sink.write(offset, &block[..read])?;
        }
        Ok(read as u64)
    }

    /// Copies the log while it grows, until a value arrives, which it returns.
    ///
    /// # Errors
    /// As [`Tail::copy_until`], and the error that arrives instead of a value.
    pub(crate) fn follow<T>(
        &mut self,
        sink: &mut dyn Sink,
        end: &Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut backoff = Backoff::new(SHORT_PAUSE, LONG_PAUSE);
        loop {
            let mut pause = Duration::ZERO;
            // Block by block: a log that grows as fast as it is read has no end.
            if self.copy_block(sink, u64::MAX)? == 0 {
                sink.quiet()?;
                pause = backoff.pause();
            } else {
                backoff.reset();
            }
            match end.recv_timeout(pause) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::failed("the waiting thread ended"));
                }
            }
        }
    }

    /// Copies the rest of the log after its program has ended, once the log writer of its last incarnation
    /// has closed it. Returns the value that arrives before that is done, if one does.
    ///
    /// # Errors
    /// As [`Tail::follow`].
    pub(crate) fn finish<T>(
        &mut self,
        sink: &mut dyn Sink,
        incarnation: Option<Tag>,
        end: &Receiver<Result<T, Error>>,
    ) -> Result<Option<T>, Error> {
        logs::wait_for_writer(self.reader.dir(), incarnation);
        while self.copy_block(sink, u64::MAX)? > 0 {
            if let Ok(result) = end.try_recv() {
                return result.map(Some);
            }
        }
        self.note_lost_end();
        Ok(None)
    }

    /// Says that the end of the log may be missing: the log was removed while it was read, or its writer was lost or
    /// could not write all of it.
    pub(crate) fn note_lost_end(&self) {
        let dir = self.reader.dir();
        if self.reader.offset() > 0 && !dir.exists() {
            out::note("poolctl: the log was removed; the end of the output may be missing");
        } else if logs::is_writer_lost(dir) {
            out::note(
                "poolctl: the log writer was lost, or its disk was full; the end of the output may be missing",
            );
        }
    }

    pub(crate) fn skip_to(&mut self, offset: u64) {
        if offset > self.reader.offset() {
            self.reader = Reader::new(self.reader.dir(), offset);
        }
    }

    fn bounds(&self) -> Result<(u64, u64), Error> {
        logs::bounds(self.reader.dir()).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &io::Error) -> Error {
        Error::failed(format!("cannot read the log in {}: {error}", self.reader.dir().display()))
    }
}

/// Notes on standard error how many of the requested bytes are missing.
fn note_missed(bytes: u64) {
    if bytes > 0 {
        out::note(&format!(
            "poolctl: {bytes} bytes are missing (cleared, over the size limit, or unreadable)"
        ));
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
        assert_eq!(tail.copy_until(&mut sink, u64::MAX).unwrap(), 0, "a log that is not there yet is empty");
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
        assert_eq!(tail.finish(&mut sink, Some(tag), &over).unwrap(), None);
        assert_eq!(sink.0, b"one\ntwo\n");
        late.join().unwrap();
    }

    #[test]
    fn what_is_left_to_copy_holds_up_neither_the_end_nor_an_interruption() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(protocol::logs::CURRENT), vec![b'x'; 3 * BLOCK]).unwrap();
        let (mut tail, mut sink) = (Tail::new(&LogFiles { dir: dir.path().into() }), Collected::default());
        let (sender, ends) = mpsc::channel();
        sender.send(Ok("ended")).unwrap();
        sender.send(Ok("interrupted")).unwrap();
        assert_eq!(tail.follow(&mut sink, &ends).unwrap(), "ended");
        assert_eq!(sink.0.len(), BLOCK);
        assert_eq!(tail.finish(&mut sink, None, &ends).unwrap(), Some("interrupted"));
        assert_eq!(sink.0.len(), 2 * BLOCK);
    }

    #[test]
    fn after_a_gap_a_copy_up_to_an_offset_leaves_the_rest_to_who_follows() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(protocol::logs::part_name(100, false)), "rest\n").unwrap();
        let (mut tail, mut sink) = (Tail::new(&LogFiles { dir: dir.path().into() }), Collected::default());
        assert_eq!(tail.copy_until(&mut sink, 50).unwrap(), 0);
        assert_eq!(tail.copy_until(&mut sink, u64::MAX).unwrap(), 5);
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
            tail.copy_until(&mut sink, u64::MAX).unwrap();
            String::from_utf8(sink.0).unwrap()
        };
        assert_eq!(rest(Tail::skip_to_first), "one\ntwo\nthree\n");
        assert_eq!(rest(|tail| tail.skip_to_last(1).map(drop)), "three\n");
        assert_eq!(rest(|tail| tail.skip_to_last_bytes(8)), "o\nthree\n");
    }
}
