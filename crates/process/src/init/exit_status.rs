//! The exit of the init itself, and its messages to the pane.

use std::io::{self, Write};

/// Exit of an init, the same as that of its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitExit {
    /// Exit code. 125: there was no job to run; 126 and 127: the program could not be run.
    Code(u8),
    /// Death by this signal; see [`resignal`](super::resignal).
    Signal(i32),
}

/// Prints a line on the pane. A terminal that has gone is ignored.
pub(super) fn print_message(text: &str) {
    drop(writeln!(io::stderr(), "tmux-pool: {text}"));
}
