//! The lines of a run's output that match `error_patterns` of its kind, for `show`.

use logs::Times;
use protocol::reply::LogFiles;
use protocol::{Tag, Timestamp};
use regex::bytes::RegexSet;

use crate::Error;
use crate::tail::{Sink, Tail};
use logs::clean::{Cleaner, Mode};

/// Bytes at the end of a run's output that are looked at.
const LOOKED_AT: u64 = 8 << 20;
/// Bytes of a line that are matched; the rest of a longer one is ignored.
const LINE_MAX: usize = 16 << 10;
/// Characters of the last line that are shown.
const SHOWN: usize = 500;

/// The error lines of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorLines {
    /// Their number.
    pub count: u64,
    /// The last one, without control sequences.
    pub last: Option<String>,
    /// The time at which the last one was written, if known.
    pub last_at: Option<Timestamp>,
}

/// Looks for error lines in the logs of a run.
///
/// # Errors
/// A log cannot be read, or a pattern is none.
pub(crate) fn find(logs: &[LogFiles], run: Tag, patterns: &[String]) -> Result<ErrorLines, Error> {
    let patterns = RegexSet::new(patterns).map_err(|error| Error::failed(error.to_string()))?;
    let mut all = ErrorLines::default();
    for log in logs {
        let mut tail = Tail::new(log);
        tail.skip_to_first()?;
        tail.skip_to_run(run)?;
        // Up to the present end only: a program may write faster than this reads.
        let end = tail.end()?;
        tail.skip_to_bytes_before(end, LOOKED_AT)?;
        let mut search = Search::new(&patterns, tail.times());
        tail.copy_until(&mut search, end)?;
        search.end()?;
        let found = search.found;
        let is_later = all.last.is_none() || found.last_at > all.last_at;
        all.count += found.count;
        if found.last.is_some() && is_later {
            (all.last, all.last_at) = (found.last, found.last_at);
        }
    }
    Ok(all)
}

/// Matches a stream of output line by line.
struct Search<'a> {
    patterns: &'a RegexSet,
    times: Times,
    /// The present line so far, and the offset of its beginning.
    line: Vec<u8>,
    offset: u64,
    found: ErrorLines,
}

impl<'a> Search<'a> {
    fn new(patterns: &'a RegexSet, times: Times) -> Self {
        Self { patterns, times, line: Vec::new(), offset: 0, found: ErrorLines::default() }
    }

    fn match_line(&mut self) {
        let text = Cleaner::new(Mode::Safe).clean(&std::mem::take(&mut self.line));
        let text = text.trim_ascii_end();
        if self.patterns.is_match(text) {
            self.found.count += 1;
            self.found.last = Some(String::from_utf8_lossy(text).chars().take(SHOWN).collect());
            self.found.last_at = self.times.at(self.offset);
        }
    }
}

impl Sink for Search<'_> {
    fn write(&mut self, offset: u64, piece: &[u8]) -> Result<(), Error> {
        let mut at = offset;
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line.is_empty() {
                self.offset = at;
            }
            at += part.len() as u64;
            let free = LINE_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(free)]);
            if part.ends_with(b"\n") {
                self.match_line();
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        if !self.line.is_empty() {
            self.match_line();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_matched_whole_and_without_colours() {
        let dir = tempfile::tempdir().unwrap();
        let patterns = RegexSet::new(["^error:", "FAILED"]).unwrap();
        let mut search = Search::new(&patterns, Times::new(dir.path()));
        for (offset, piece) in
            [(0, "ok\r\n\x1b[31mer"), (9, "ror: a\x1b[0m\r\nno error: b\ntest FAI"), (37, "LED")]
        {
            search.write(offset, piece.as_bytes()).unwrap();
        }
        assert_eq!((search.found.count, search.found.last.as_deref()), (1, Some("error: a")));
        search.end().unwrap();
        assert_eq!((search.found.count, search.found.last.as_deref()), (2, Some("test FAILED")));
        let long = format!("{}FAILED\n", "x".repeat(LINE_MAX));
        search.write(40, long.as_bytes()).unwrap();
        assert_eq!(search.found.count, 2, "the rest of a long line is ignored");
    }
}
