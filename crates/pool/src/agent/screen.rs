//! Readings of an agent's terminal.

pub use agents::screen::ScreenReading;
use protocol::Timestamp;

/// The window title of an agent's terminal, as far as it tells the agent's activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowTitle {
    /// No title was read.
    #[default]
    Unread,
    /// The title says that a person is waited for, first seen at this time.
    Asks(Timestamp),
    /// Any other title, last read at this time.
    Other(Timestamp),
}

/// A mark in the output of a shell. Marks are ordered by their place in the log: the clock may be set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShellMark {
    /// Offset of its end in the session's log.
    pub end: u64,
    /// Time at which it was first read; if it was written before the first sample, the time in the log's index.
    pub at: Timestamp,
}

/// Marks that a program sent to its terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalMarks {
    /// The last prompt mark (OSC 133 A, B, D).
    pub prompt: Option<ShellMark>,
    /// The last command mark (OSC 133 C).
    pub command: Option<ShellMark>,
    /// Exit code of the last command, if it was marked.
    pub code: Option<i32>,
    /// Time of the last bell while no client was attached.
    pub bell_at: Option<Timestamp>,
}

impl TerminalMarks {
    /// The last prompt or command mark.
    pub fn last_of_shell(&self) -> Option<ShellMark> {
        self.prompt.max(self.command)
    }

    /// True if the shell's last mark is that of a command.
    pub(crate) fn runs_command(&self) -> bool {
        self.command > self.prompt
    }
}
