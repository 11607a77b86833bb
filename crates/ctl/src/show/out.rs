//! Standard output and its style.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{getpgrp, tcgetpgrp};
use serde::Serialize;

use crate::Error;
use crate::show::{escape, hint};

/// Erases the line of the cursor on a terminal.
pub(crate) const ERASE_LINE: &str = "\r\x1b[K";

/// True while a line "waiting for ..." may be shown on standard error: a note takes its place.
pub(crate) static PROGRESS_SHOWN: AtomicBool = AtomicBool::new(false);

/// The style of the output, decided once at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// True for JSON instead of text for people.
    pub json: bool,
    /// True to print only what a script needs.
    pub quiet: bool,
    /// True if standard output is a terminal: times are relative, control characters are escaped.
    pub terminal: bool,
    /// True to use colours.
    pub colour: bool,
}

impl Style {
    /// Paints text by an SGR code (`31` red, `32` green, `33` yellow, `2` dim), if colours are used.
    pub(crate) fn paint(self, code: u8, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// True if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// True if this command is in the foreground of its terminal, so that it may draw in the cursor's line. While it runs
/// in the background, a person types there, and `stty tostop` stops a command that writes.
pub(crate) fn is_in_foreground() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}

/// Writes text unchanged.
///
/// # Errors
/// Standard output cannot be written, or its reader closed it.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    bytes(text.as_bytes())
}

/// Writes bytes unchanged.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes a line.
pub(crate) fn line(line: &str) -> Result<(), Error> {
    text(&format!("{line}\n"))
}

/// Writes a JSON document on one line.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(document).map_err(|error| Error::Output(error.into()))?;
    line(&escape::json(&text))
}

/// Writes a note for people to standard error. A failure to write it is ignored.
pub(crate) fn note(text: &str) {
    let is_erased = PROGRESS_SHOWN.load(Ordering::Relaxed) && is_in_foreground();
    let erase = if is_erased { ERASE_LINE } else { "" };
    drop(writeln!(io::stderr(), "{erase}{}", hint::message(text)));
}
