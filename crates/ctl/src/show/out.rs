//! Standard output, and what is known about it.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::error::Error;

/// How output looks, decided once at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// JSON instead of text for people.
    pub json: bool,
    /// Only what a script needs.
    pub quiet: bool,
    /// Standard output is a terminal: times are relative, control characters are escaped.
    pub terminal: bool,
    /// Colours.
    pub colour: bool,
}

impl Style {
    /// Text in a colour of the terminal's palette (`31` red, `32` green, `33` yellow, `2` dim).
    #[must_use]
    pub(crate) fn paint(self, code: u8, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Whether standard output is a terminal.
#[must_use]
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes text as it is.
///
/// # Errors
/// Standard output cannot be written; a closed pipe among them.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    bytes(text.as_bytes())
}

/// Writes bytes as they are.
///
/// # Errors
/// As [`text`].
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes a line.
///
/// # Errors
/// As [`text`].
pub(crate) fn line(line: &str) -> Result<(), Error> {
    text(&format!("{line}\n"))
}

/// Writes one JSON document on one line.
///
/// # Errors
/// As [`text`].
pub(crate) fn json(document: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(document).map_err(|error| Error::Output(error.into()))?;
    line(&text)
}

/// Says something to a person beside the output. Standard error that cannot be written is no reason to stop.
pub(crate) fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
