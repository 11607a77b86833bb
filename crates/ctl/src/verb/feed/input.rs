//! Standard input as lines, without ever blocking on it.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{self, JoinHandle};

use crate::error::Error;

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;

/// Lines, numbered from 1 as an editor does; what is blank is no line of the feed.
#[derive(Debug)]
pub(super) struct Input {
    /// What standard input brings. That itself may be what cannot be waited for, as a terminal on macOS.
    pipe: PipeReader,
    /// Fills the pipe.
    copying: JoinHandle<io::Result<u64>>,
    lines: VecDeque<Vec<u8>>,
    /// The line that is not whole yet.
    rest: Vec<u8>,
    /// Number of the last line that was given out.
    number: u64,
    ended: bool,
}

impl Input {
    /// Begins to read.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn start() -> Result<Self, Error> {
        let (pipe, mut writer) = io::pipe().map_err(|error| unreadable(&error))?;
        let copying = thread::spawn(move || io::copy(&mut io::stdin().lock(), &mut writer));
        Ok(Self { pipe, copying, lines: VecDeque::new(), rest: Vec::new(), number: 0, ended: false })
    }

    /// The next line that was read, with its number.
    pub(super) fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            let line = self.lines.pop_front()?;
            self.number += 1;
            if !line.trim_ascii().is_empty() {
                return Some((self.number, line));
            }
        }
    }

    /// Whether no line comes any more.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.lines.is_empty()
    }

    /// Reads what is there, and waits where nothing is.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(&mut self) -> Result<(), Error> {
        let mut block = vec![0; BLOCK];
        let read = self.pipe.read(&mut block).map_err(|error| unreadable(&error))?;
        self.take(&block[..read]);
        Ok(())
    }

    /// Takes a block in; an empty one is the end, which ends the last line too.
    fn take(&mut self, block: &[u8]) {
        for piece in block.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.lines.push_back(std::mem::take(&mut self.rest));
            }
        }
        if block.is_empty() {
            self.ended = true;
            self.lines.extend(Some(std::mem::take(&mut self.rest)).filter(|rest| !rest.is_empty()));
        }
    }

    /// Whether it ended because there was no more.
    ///
    /// # Errors
    /// It could not be read to its end.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.copying.join() {
            Ok(Err(error)) => Err(unreadable(&error)),
            _ => Ok(()),
        }
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

fn unreadable(error: &io::Error) -> Error {
    Error::usage(format!("standard input: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> Input {
        let (pipe, _) = io::pipe().unwrap();
        let copying = thread::spawn(|| Ok(0));
        Input { pipe, copying, lines: VecDeque::new(), rest: Vec::new(), number: 0, ended: false }
    }

    #[test]
    fn lines_are_whole_and_numbered() {
        let mut input = input();
        input.take(b"one\n\n  \ntw");
        assert_eq!(input.next(), Some((1, b"one\n".to_vec())));
        assert_eq!(input.next(), None, "not whole yet");
        input.take(b"o\nlast");
        assert_eq!(input.next(), Some((4, b"two\n".to_vec())));
        assert_eq!(input.next(), None);
        input.read().unwrap();
        assert!(!input.is_over());
        assert_eq!(input.next(), Some((5, b"last".to_vec())));
        assert!(input.is_over() && input.finish().is_ok());
    }

    #[test]
    fn an_input_that_failed_did_not_just_end() {
        let mut input = input();
        input.copying = thread::spawn(|| Err(io::ErrorKind::IsADirectory.into()));
        input.read().unwrap();
        assert!(input.is_over());
        assert!(input.finish().unwrap_err().to_string().starts_with("standard input: "));
    }
}
