//! Readings of an agent's terminal.

use agents::screen::{Composer, Dialog};
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

/// Marks that a program sent to its terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalMarks {
    /// Time of the last prompt mark (OSC 133 A, B, D).
    pub prompt_at: Option<Timestamp>,
    /// Time of the last command mark (OSC 133 C).
    pub command_at: Option<Timestamp>,
    /// Exit code of the last command, if it was marked.
    pub code: Option<i32>,
    /// Time of the last bell while no client was attached.
    pub bell_at: Option<Timestamp>,
}

/// A reading of an agent's screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenReading {
    /// Time of the reading.
    pub at: Timestamp,
    /// The composer, in which prompts are typed.
    pub composer: Composer,
    /// The open dialog.
    pub dialog: Option<Dialog>,
    /// True if the screen says that the agent works; none if it does not tell.
    pub works: Option<bool>,
    /// Work in the background that the screen reports.
    pub background: Option<String>,
}
