//! Shows text that may be longer than the screen.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{SigSet, Signal};
use terminal_size::{Height, Width, terminal_size};

use crate::show::out;
use crate::{Error, exit};

/// Columns if standard output is not a terminal.
const WIDTH: usize = 80;
/// Most columns that text is filled to: longer lines are hard to read.
const WIDTH_MAX: usize = 100;
/// The pager if `PAGER` is not set.
const PAGER: &str = "less";
/// Options of `less` if `LESS` is not set: exit if the text fits, show colours, keep the text on the screen.
const LESS: &str = "FRX";

/// Returns the number of columns to fill text to.
pub(crate) fn width(terminal: bool) -> usize {
    let size = terminal_size().filter(|_| terminal);
    size.map_or(WIDTH, |(Width(columns), _)| usize::from(columns).min(WIDTH_MAX))
}

/// Prints a text, through `$PAGER` if standard output is a terminal with fewer rows.
pub(crate) fn show(text: &str, terminal: bool) -> Result<(), Error> {
    let rows = terminal_size().map(|(_, Height(rows))| usize::from(rows));
    let is_long = terminal && rows.is_some_and(|rows| text.lines().count() >= rows);
    if is_long && is_paged(text) { Ok(()) } else { out::text(text) }
}

/// Runs the pager with the text until it exits; false if it cannot be run.
fn is_paged(text: &str) -> bool {
    let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let mut command = match variable("PAGER") {
        Some(pager) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(pager);
            command
        }
        None => Command::new(PAGER),
    };
    if variable("LESS").is_none() {
        command.env("LESS", LESS);
    }
    let Ok(mut pager) = command.stdin(Stdio::piped()).spawn() else { return false };
    // Ctrl-C belongs to the pager, which interrupts a search with it. If blocking fails, both receive it.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.thread_block().ok();
    if let Some(mut input) = pager.stdin.take() {
        // A pager that exits early does not read the rest.
        input.write_all(text.as_bytes()).ok();
    }
    pager.wait().is_ok_and(has_run)
}

/// False for the end of a shell that found no pager, or one that cannot be executed: nobody has read the text.
fn has_run(shell: ExitStatus) -> bool {
    let code = shell.code().and_then(|code| u8::try_from(code).ok());
    !code.is_some_and(|code| [exit::NO_PROGRAM, exit::NOT_EXECUTED].contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_that_cannot_be_executed_is_none() {
        let ended =
            |line: &str| Command::new("sh").args(["-c", line]).stderr(Stdio::null()).status().unwrap();
        assert!(!has_run(ended("/dev/null")) && !has_run(ended("/nonexistent/pager")));
        assert!(has_run(ended("exit 1")) && has_run(ended("kill -TERM $$")));
    }
}
