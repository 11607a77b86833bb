//! Reads lines from standard input without blocking.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::JoinHandle;

use crate::{Error, threads};

/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;

/// The lines, numbered from 1 as in an editor; blank lines are skipped.
#[derive(Debug)]
pub(super) struct Input {
    /// A copy of standard input, which itself may not support polling, as a terminal on macOS.
    pipe: PipeReader,
    /// The thread that fills the pipe.
    copying: JoinHandle<io::Result<u64>>,
    lines: VecDeque<Vec<u8>>,
    /// The incomplete last line.
    rest: Vec<u8>,
    /// The number of the last returned line.
    number: u64,
    ended: bool,
}

impl Input {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self, Error> {
        let (pipe, mut writer) = io::pipe().map_err(|error| unreadable(&error))?;
        let copying = threads::require(move || io::copy(&mut io::stdin().lock(), &mut writer))?;
        Ok(Self { pipe, copying, lines: VecDeque::new(), rest: Vec::new(), number: 0, ended: false })
    }

    /// Returns the next complete line, with its number.
    pub(super) fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            let line = self.lines.pop_front()?;
            self.number += 1;
            if !line.trim_ascii().is_empty() {
                return Some((self.number, line));
            }
        }
    }

    /// True if there are no more lines.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.lines.is_empty()
    }

    /// Reads a block; blocks if none has arrived.
    pub(super) fn read(&mut self) -> Result<(), Error> {
        let mut block = vec![0; BLOCK];
        let read = self.pipe.read(&mut block).map_err(|error| unreadable(&error))?;
        self.take(&block[..read]);
        Ok(())
    }

    /// Splits a block into lines. An empty block is the end of the input, and of the last line.
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

    /// Checks that the whole input was read.
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
    use std::thread;

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
