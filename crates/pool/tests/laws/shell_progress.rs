//! The progress of a prompt in a shell that marks its prompts and commands.

use pool::agent::{ShellMark, TerminalMarks};
use pool::prompt::OutputStart::{self, Offset, Time};
use pool::prompt::ShellProgress::{self, Back, OnlyPrompt, Running, Unseen};
use pool::prompt::shell_progress;
use protocol::Timestamp;

use crate::stage::{START, Stage};

const HOUR: u64 = 3_600_000;

/// A mark whose end has this offset in the log, seen at this time.
fn mark(end: u64, ms: u64) -> Option<ShellMark> {
    Some(ShellMark { end, at: Timestamp(START + ms) })
}

fn marks(prompt: Option<ShellMark>, command: Option<ShellMark>) -> TerminalMarks {
    TerminalMarks { prompt, command, ..TerminalMarks::default() }
}

fn progress(stage: &Stage, marks: &TerminalMarks, start: OutputStart) -> (ShellProgress, ShellProgress) {
    let progress = |accepted| shell_progress(stage.pool(), marks, (start, accepted), stage.now());
    (progress(false), progress(true))
}

#[test]
fn a_prompt_is_done_once_its_command_has_ended() {
    let stage = Stage::new("shell");
    for (prompt, command, expected) in [
        (mark(100, 0), mark(60, 0), (Unseen, Unseen)),
        // The shell draws its prompt anew, or the text is a comment.
        (mark(120, 1), mark(60, 0), (OnlyPrompt, Back)),
        (mark(100, 0), mark(110, 1), (Running, Running)),
        (mark(120, 2), mark(110, 1), (Back, Back)),
        // A shell that marks no commands.
        (mark(100, 0), None, (Unseen, Unseen)),
        (mark(120, 1), None, (Back, Back)),
        (None, mark(110, 1), (Running, Running)),
    ] {
        let marks = marks(prompt, command);
        assert_eq!(progress(&stage, &marks, Offset(100)), expected, "{marks:?}");
    }
}

#[test]
fn marks_of_before_a_prompt_are_not_its_own_whatever_the_clock_shows() {
    let mut stage = Stage::new("shell");
    stage.pass(HOUR);
    let old = marks(mark(100, HOUR), mark(60, HOUR - 1));
    stage.sets_clock(START + 60_000);
    stage.pass(1000);
    let began = START + 60_500;
    assert_eq!(progress(&stage, &old, Offset(100)), (Unseen, Unseen));
    assert_eq!(progress(&stage, &old, Time(Timestamp(began))), (Unseen, Unseen));
    // The clock shows once more what it showed when the prompt was marked.
    stage.pass(HOUR);
    assert_eq!(progress(&stage, &old, Offset(100)), (Unseen, Unseen));
    assert_eq!(progress(&stage, &old, Time(Timestamp(began))), (Unseen, Unseen));
    let new = marks(mark(100, HOUR), mark(110, 60_900));
    assert_eq!(progress(&stage, &new, Offset(100)), (Running, Running));
}

#[test]
fn after_a_start_of_the_daemon_the_time_tells() {
    let mut stage = Stage::new("shell");
    stage.pass(HOUR);
    let start = Time(Timestamp(START + 1000));
    for (prompt, command, expected) in [
        (mark(100, 900), mark(60, 800), (Unseen, Unseen)),
        (mark(100, 1000), mark(60, 800), (Unseen, Unseen)),
        (mark(100, 900), mark(110, 1001), (Running, Running)),
        // The time of what was written before the start is exact to a second only.
        (mark(120, 1500), mark(110, 1000), (OnlyPrompt, Back)),
        (mark(120, 1500), mark(110, 1200), (Back, Back)),
    ] {
        let marks = marks(prompt, command);
        assert_eq!(progress(&stage, &marks, start), expected, "{marks:?}");
    }
}
