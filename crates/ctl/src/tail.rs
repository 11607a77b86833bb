//! A session's output log: read from where one wants, and followed while it grows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use protocol::reply::LogFiles;

use crate::error::Error;
use crate::show::clean::{Cleaner, Mode};
use crate::show::out;

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;
/// Pauses between two looks at a log: short after something came, longer while nothing does.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(200);
/// How long the log's writer may take from making its file to holding it.
const WRITER_START: Duration = Duration::from_millis(200);
/// How long the log's writer may take to write out what a program left behind.
const WRITER_LIMIT: Duration = Duration::from_secs(2);

/// Where the bytes of a log go.
pub(crate) trait Sink {
    /// Takes a piece.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&mut self, piece: &[u8]) -> Result<(), Error>;

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
    fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        out::bytes(&self.0.clean(piece))
    }
}

/// A log of one or more files, as one stream of bytes. The last file may not be there yet.
#[derive(Debug)]
pub(crate) struct Tail {
    files: Vec<PathBuf>,
    /// Which file is read.
    at: usize,
    open: Option<File>,
    /// Offset in the whole stream of what comes next.
    offset: u64,
    /// Offset in the last file of the first byte that is wanted of it.
    from: u64,
}

impl Tail {
    /// From the first byte.
    #[must_use]
    pub(crate) fn new(log: &LogFiles) -> Self {
        let files = log.files.iter().map(|file| file.as_path().to_owned()).collect();
        Self { files, at: 0, open: None, offset: 0, from: 0 }
    }

    /// Skips what is before the last so many lines.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn skip_to_last(&mut self, lines: u64) -> Result<(), Error> {
        let mut left = lines;
        let mut lengths = Vec::new();
        for path in &self.files {
            lengths.push(path.metadata().map_or(0, |found| found.len()));
        }
        for at in (0..self.files.len()).rev() {
            let last = at + 1 == self.files.len();
            let start =
                start_of_last(&self.files[at], &mut left, last).map_err(|error| self.unreadable(&error))?;
            if let Some(start) = start {
                let before: u64 = lengths[..at].iter().sum();
                (self.at, self.offset) = (at, before + start);
                self.from = if last { start } else { 0 };
                let mut file = File::open(&self.files[at]).map_err(|error| self.unreadable(&error))?;
                file.seek(SeekFrom::Start(start)).map_err(|error| self.unreadable(&error))?;
                self.open = Some(file);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Offset in the whole stream of what comes next.
    #[must_use]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Copies what is there; how many bytes that were.
    ///
    /// # Errors
    /// The log cannot be read, or the sink not written.
    pub(crate) fn copy(&mut self, sink: &mut dyn Sink) -> Result<u64, Error> {
        let start = self.offset;
        let mut block = vec![0; BLOCK];
        loop {
            let read = self.read(&mut block).map_err(|error| self.unreadable(&error))?;
            if read == 0 {
                return Ok(self.offset - start);
            }
            self.offset += read as u64;
            sink.write(&block[..read])?;
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

    /// Copies the rest of a log whose program is over: everything, once its writer has let go of it.
    ///
    /// # Errors
    /// As [`Tail::copy`].
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        if let Some(path) = self.files.last() {
            wait_for_writer(path, self.from);
        }
        self.copy(sink).map(drop)
    }

    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        while self.at < self.files.len() {
            if self.open.is_none() {
                match File::open(&self.files[self.at]) {
                    Ok(file) => self.open = Some(file),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            let read = self.open.as_mut().map_or(Ok(0), |file| file.read(block))?;
            let last = self.at + 1 == self.files.len();
            if read > 0 || last {
                return Ok(read);
            }
            (self.at, self.open) = (self.at + 1, None);
        }
        Ok(0)
    }

    fn unreadable(&self, error: &io::Error) -> Error {
        let path = self.files.get(self.at).map(|path| path.display().to_string()).unwrap_or_default();
        Error::failed(format!("cannot read the log {path}: {error}"))
    }
}

/// Where the last `left` lines of a file start; `None` where it has fewer, which `left` is then less.
/// A newline at the end of the `last` file ends its last line.
fn start_of_last(path: &Path, left: &mut u64, last: bool) -> io::Result<Option<u64>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let length = file.seek(SeekFrom::End(0))?;
    let mut end = length;
    let mut block = vec![0; BLOCK];
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let piece = &mut block[..usize::try_from(end - start).unwrap_or(BLOCK)];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(piece)?;
        for (at, byte) in piece.iter().enumerate().rev() {
            let after = start + at as u64 + 1;
            let ends_the_log = last && after == length;
            if *byte != b'\n' || (ends_the_log && *left > 0) {
                continue;
            }
            if *left <= 1 {
                return Ok(Some(if *left == 0 { length } else { after }));
            }
            *left -= 1;
        }
        end = start;
    }
    Ok((*left == 0 && last).then_some(length))
}

/// Waits until the writer is done, which may not even have begun: a program can be faster than it.
fn wait_for_writer(path: &Path, from: u64) {
    let deadline = Instant::now() + WRITER_LIMIT;
    let mut seen = false;
    while !is_written(path, from, &mut seen) && Instant::now() < deadline {
        thread::sleep(SHORT_PAUSE);
    }
}

/// The writer holds its log exclusively while it runs. It is done once it let go: where it was `seen`
/// at work, has left something after this offset, or has had the time to begin: one that wrote
/// nothing looks like one that has only just made its file.
fn is_written(path: &Path, from: u64, seen: &mut bool) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let Ok(found) = file.metadata() else { return false };
    let left_something = found.len() > from;
    let begun = found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= WRITER_START));
    let free = Flock::lock(file, FlockArg::LockSharedNonblock).is_ok();
    *seen |= !free;
    free && (*seen || left_something || begun)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::mpsc;
    use std::time::SystemTime;

    use super::*;

    #[derive(Default)]
    struct Collected(Vec<u8>);

    impl Sink for Collected {
        fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
            self.0.extend_from_slice(piece);
            Ok(())
        }
    }

    fn tail(dir: &tempfile::TempDir, names: &[&str]) -> Tail {
        Tail::new(&LogFiles { files: names.iter().map(|name| dir.path().join(name).into()).collect() })
    }

    fn last(dir: &tempfile::TempDir, names: &[&str], lines: u64) -> (u64, String) {
        let mut tail = tail(dir, names);
        tail.skip_to_last(lines).unwrap();
        let offset = tail.offset();
        let mut sink = Collected::default();
        tail.copy(&mut sink).unwrap();
        (offset, String::from_utf8(sink.0).unwrap())
    }

    #[test]
    fn the_last_lines_over_several_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), "one\ntwo\nthr").unwrap();
        fs::write(dir.path().join("new"), "ee\nfour\n").unwrap();
        let names = ["missing", "old", "new"];
        let expected = [
            (0, 19, ""),
            (1, 14, "four\n"),
            (2, 8, "three\nfour\n"),
            (3, 4, "two\nthree\nfour\n"),
            (4, 0, "one\ntwo\nthree\nfour\n"),
            (9, 0, "one\ntwo\nthree\nfour\n"),
        ];
        for (lines, offset, text) in expected {
            assert_eq!(last(&dir, &names, lines), (offset, text.to_owned()), "{lines}");
        }
        fs::write(dir.path().join("new"), "ee\nno newline").unwrap();
        assert_eq!(last(&dir, &names, 1).1, "no newline");
        fs::write(dir.path().join("big"), "0123456789\n".repeat(20_000)).unwrap();
        assert_eq!(last(&dir, &["big"], 9_000).1.lines().count(), 9_000);
    }

    #[test]
    fn nothing_is_lost_between_the_end_and_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = tail(&dir, &["log"]);
        let mut sink = Collected::default();
        assert_eq!(tail.copy(&mut sink).unwrap(), 0, "a log that is not there yet is empty");
        let file = File::options().create(true).append(true).open(&path).unwrap();
        let mut writer = Flock::lock(file, FlockArg::LockExclusive).ok().unwrap();
        writer.write_all(b"one\n").unwrap();
        let (sender, over) = mpsc::channel();
        sender.send(Ok(7)).unwrap();
        assert_eq!(tail.follow(&mut sink, &over).unwrap(), 7);
        let late = thread::spawn(move || {
            writer.write_all(b"two\n").unwrap();
            drop(writer);
        });
        tail.finish(&mut sink).unwrap();
        assert_eq!(sink.0, b"one\ntwo\n");
        late.join().unwrap();
    }

    #[test]
    fn a_writer_that_has_not_begun_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut seen = false;
        assert!(!is_written(&path, 0, &mut seen), "not there yet");
        let mut writer = File::create(&path).unwrap();
        let fresh = |log: &File| log.set_modified(SystemTime::now() + WRITER_LIMIT * 100).unwrap();
        fresh(&writer);
        assert!(!is_written(&path, 0, &mut seen), "not held yet, and empty");
        writer.write_all(b"one\n").unwrap();
        fresh(&writer);
        assert!(is_written(&path, 0, &mut seen) && !seen, "done before it was looked at");
        assert!(!is_written(&path, 4, &mut seen), "what was there before is not its work");
        let held = Flock::lock(writer, FlockArg::LockExclusive).ok().unwrap();
        assert!(!is_written(&path, 0, &mut seen) && seen);
        drop(held);
        assert!(is_written(&path, 4, &mut seen), "it was at work, and wrote nothing");
        File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(is_written(&path, 4, &mut false), "it had the time to begin");
    }
}
