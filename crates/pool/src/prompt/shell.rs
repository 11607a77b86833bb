//! The progress of a prompt in a shell that marks its prompts and commands (OSC 133).

use protocol::Timestamp;

use crate::Pool;
use crate::agent::{ShellMark, TerminalMarks};

/// The place in a shell's output from which on it follows a prompt.
#[derive(Debug, Clone, Copy)]
pub enum OutputStart {
    /// This offset of the log, which was its end before Enter.
    Offset(u64),
    /// The time at which the typing began. Used if the offset is unknown: after a start of the daemon, or if the log
    /// could not be read.
    Time(Timestamp),
}

/// The progress of a prompt in its shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellProgress {
    /// No mark follows the prompt.
    Unseen,
    /// The shell showed its prompt, and no command has begun: the text was empty, a comment or no valid command, or the
    /// shell only drew its prompt again.
    OnlyPrompt,
    /// Its command runs.
    Running,
    /// Its command has ended, and the shell's prompt is back.
    Back,
}

/// Returns how far a prompt has got. If the shell has never marked a command, or its prompt was shown after the text
/// was accepted, the shell counts as back without a further mark.
pub fn shell_progress(
    pool: &Pool,
    marks: &TerminalMarks,
    (start, accepted): (OutputStart, bool),
    now: Timestamp,
) -> ShellProgress {
    let is_new = |mark: &ShellMark| match start {
        OutputStart::Offset(start) => mark.end > start,
        OutputStart::Time(start) => pool.is_surely_earlier(now, start, mark.at),
    };
    let (prompt, command) = (marks.prompt.filter(is_new), marks.command.filter(is_new));
    match (prompt, command) {
        (None, None) => ShellProgress::Unseen,
        _ if marks.runs_command() => ShellProgress::Running,
        (Some(_), None) if !accepted && marks.command.is_some() => ShellProgress::OnlyPrompt,
        _ => ShellProgress::Back,
    }
}
