//! A line that somebody began to type in a shell and left: a prompt would be appended to it, and both run.

use std::time::Duration;

use pool::prompt::KeyLine;
use protocol::{SessionId, Tag, Timestamp};
use tmux::PaneRef;

use agents::screen::Screen;

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;

/// Longest time between the press of a key and the record of it. Either may come first.
const ECHO_LIMIT: Duration = Duration::from_millis(500);

/// Number of letters that identify a line by its end, or by its beginning while a person continues it.
const RECOGNISED: usize = 12;

/// True if somebody left a line in the row with the cursor. That is so in three cases: the row ends with keys that
/// `poolctl keys` pressed without Enter, perhaps while the last command was still running; it shows a text that the
/// pool typed without Enter; or it has changed since the shell drew its own prompt there, and somebody was at the
/// terminal when it changed, or detached or pressed keys after that (last at `keys_at`).
///
/// False if the row is the shell's prompt as it was before the last text. The log of a shell that `edits_lines` has a
/// mark where the shell begins to edit; in the log of another shell, such a mark may be an earlier program's, left
/// without its end.
pub(crate) async fn is_left(
    daemon: &Daemon,
    (session, tag): (SessionId, Tag),
    (seen, row): (&tmux::PaneSnapshot, &str),
    (keys_at, line): (Option<Timestamp>, KeyLine),
    edits_lines: bool,
) -> bool {
    if !line.prompt.is_empty() && is_same_prompt(row, &line.prompt) {
        return false;
    }
    // A person may have continued the line since: a row counts as that line if it begins with it, and the line is long
    // enough to be recognised.
    let goes_on = line.left.len() >= RECOGNISED && row.starts_with(&line.left);
    let is_left = !line.left.is_empty() && row == line.left;
    let is_kept = line.abandoned.as_deref() == Some(row) || is_left || goes_on;
    if is_kept || ends_with_begun(row, &line.begun) {
        return true;
    }
    let Some(active_at) = seen.active_at else { return false };
    let (dir, size) = (daemon.paths.logs_of(session), (seen.size.height, seen.size.width));
    let read = move || logs::paused_line(&dir, tag, size, edits_lines).ok().flatten();
    let Some(prompt) = daemon.blocking.with_timeout(Purpose::Logs, read).await.flatten() else {
        // The log does not show the prompt, perhaps because the log was cleared. Then text behind the last known
        // prompt counts as a left line if somebody was at the terminal since the pool last typed.
        return is_behind(row, &line.prompt) && was_there_since_input(daemon, tag, active_at).await;
    };
    // tmux knows the activity of a person to the second. The Enter of a command is older than a pause in its output, so
    // a shell's prompt that was drawn in the same row counts as nobody's line.
    let person = end_of_second(active_at);
    let keys = keys_at.map(|at| at.after(ECHO_LIMIT));
    let was_there = move |turn: &mut Turn<'_>| {
        let was_before = |at| turn.pool().is_surely_earlier(turn.now(), at, prompt.resumed_at);
        !was_before(person) || keys.is_some_and(|at| !was_before(at))
    };
    let was_there = seen.has_control_client || daemon.engine.turn(was_there).await.unwrap_or(true);
    // A shell does not draw its line again below the output of a job, so an empty row there hides the line: of its
    // contents only the keys that the pool pressed are known.
    let is_hidden = prompt.is_below && letters(row).next().is_none();
    let is_own = is_own_row(row, &prompt.row, &line.discarded) || is_hidden && line.begun.is_empty();
    was_there && !is_own && (edits_lines || !prompt.is_below || is_drawn_again(row, &prompt.row))
}

/// True if a row is a prompt with something behind it.
fn is_behind(row: &str, prompt: &str) -> bool {
    let length = letters(prompt).count();
    length > 0 && letters(row).count() > length && is_drawn_again(row, prompt)
}

/// Returns the last millisecond of a second since the Unix epoch: tmux knows the activity of a person to the second.
fn end_of_second(seconds: u64) -> Timestamp {
    Timestamp(seconds.saturating_mul(1000).saturating_add(999))
}

/// True if somebody may have been at the terminal since the pool last typed into it.
async fn was_there_since_input(daemon: &Daemon, tag: Tag, active_at: u64) -> bool {
    let person = end_of_second(active_at);
    let was_there = move |turn: &mut Turn<'_>| {
        let typed_at = turn.volatile.prompts.delivered_at().get(&tag).copied();
        typed_at.is_none_or(|typed| !turn.pool().is_surely_earlier(turn.now(), person, typed))
    };
    daemon.engine.turn(was_there).await.unwrap_or(true)
}

/// True if a row begins with the shell's prompt, as below a list of completions.
fn is_drawn_again(row: &str, drawn: &str) -> bool {
    let drawn: String = letters(drawn).collect();
    letters(row).collect::<String>().starts_with(&drawn)
}

/// True if a row is as the shell drew it, perhaps together with what `poolctl keys` had typed before and has discarded
/// since.
fn is_own_row(row: &str, drawn: &str, discarded: &str) -> bool {
    let (row, drawn): (String, String) = (letters(row).collect(), letters(drawn).collect());
    is_same_prompt(&row, &drawn) || !discarded.is_empty() && drawn.strip_suffix(discarded) == Some(&row)
}

/// True if both rows are the same prompt, up to the digits, which may be a clock. A row with typed text has more
/// letters.
fn is_same_prompt(row: &str, drawn: &str) -> bool {
    let shape = |row: &str| -> String {
        letters(row).map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect()
    };
    shape(row) == shape(drawn)
}

/// Returns the rows of a screen down to the cursor's.
pub(crate) fn rows_to_cursor(seen: &tmux::PaneSnapshot) -> Vec<String> {
    let screen = Screen::new(&seen.screen);
    screen.lines().take(usize::from(seen.cursor.1) + 1).map(str::to_owned).collect()
}

/// Echo of a text that was typed into the line of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LineEcho {
    /// The text was drawn, or the comparison is not possible: the text is not plain, may not fit the row, or the row
    /// has moved, for example by the output of a job.
    AsSent,
    /// Nothing: not yet, or its editor took the text as commands.
    Undrawn,
    /// The row shows something else: a key was pressed before the text, or the line editor took the text as commands.
    Altered(String),
}

/// Compares the row with the cursor with a text that was typed. `before` are the rows from before the text.
pub(crate) fn line_echo(before: &[String], rows: &[String], (text, width): (&[u8], u16)) -> LineEcho {
    let (Some((last, above)), Some((row, rows))) = (before.split_last(), rows.split_last()) else {
        return LineEcho::AsSent;
    };
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| is_plain(&byte)));
    let Some(text) = text else { return LineEcho::AsSent };
    let columns = text.len() + 7 * text.matches('\t').count();
    let fits = last.chars().count() + columns + 2 < usize::from(width);
    let wanted: String = unquoted(text).collect();
    if !fits || above != rows || wanted.is_empty() {
        LineEcho::AsSent
    } else if row == last {
        LineEcho::Undrawn
    } else if unquoted(row).collect::<String>().contains(&wanted) {
        LineEcho::AsSent
    } else {
        LineEcho::Altered(row.clone())
    }
}

/// True if a row shows the end of a text, or is empty, as while the shell waits for the rest of it.
pub(crate) fn may_hold(row: &str, text: &[u8]) -> bool {
    let (end, shown) = (end_of(text), unquoted(row).collect::<String>());
    !end.is_empty() && (shown.is_empty() || shown.ends_with(&end))
}

/// True if a row shows a text, perhaps with a shell's suggestion or its right prompt behind it.
fn shows(row: &str, text: &[u8]) -> bool {
    let end = end_of(text);
    end.chars().count() >= RECOGNISED && unquoted(row).collect::<String>().contains(&end)
}

/// Returns the last letters of a text.
fn end_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let last: Vec<char> = unquoted(text.lines().last().unwrap_or_default()).collect();
    last[last.len().saturating_sub(RECOGNISED)..].iter().collect()
}

/// Remembers a text that was typed and not entered: as long as it stands in the terminal, no other is appended to it.
pub(crate) async fn keep_unentered(daemon: &Daemon, pane: PaneRef, text: &[u8]) {
    let seen = daemon.tmux.snapshot(pane).await.ok();
    let row = seen.and_then(|seen| rows_to_cursor(&seen).pop()).filter(|row| shows(row, text));
    let (tag, text) = (pane.tag, String::from_utf8_lossy(text).into_owned());
    daemon.engine.post(move |turn| turn.volatile.prompts.leave_unentered(tag, &text, row));
}

/// Returns the letters of a row without backslashes, by which some shells quote what is pasted.
fn unquoted(row: &str) -> impl Iterator<Item = char> {
    letters(row).filter(|letter| *letter != '\\')
}

/// Returns the letters of a row. Blanks do not count: a text at the right margin moves with the terminal's size.
fn letters(row: &str) -> impl Iterator<Item = char> {
    row.chars().filter(|letter| !letter.is_whitespace())
}

/// True if a row ends with the line that was begun, or all of the row is the end of it.
pub(crate) fn ends_with_begun(row: &str, begun: &str) -> bool {
    let (row, begun): (Vec<char>, Vec<char>) = (letters(row).collect(), begun.chars().collect());
    let shown = row.len().min(begun.len());
    shown > 0 && row[row.len() - shown..] == begun[begun.len() - shown..]
}

#[cfg(test)]
mod tests {
    use super::{LineEcho, ends_with_begun, is_own_row, line_echo, shows};

    #[test]
    fn a_row_is_the_shells_own_once_what_was_drawn_with_it_is_discarded() {
        for (row, drawn, discarded, is_own) in [
            ("$ ", "$ ", "", true),
            ("$ ", "$ rm -r", "rm-r", true),
            ("$ rm", "$ rm -r", "rm-r", false),
            ("$ ", "$ rm -r", "", false),
            ("$ ls", "$ ", "", false),
            ("18:31:07 $ ", "18:29:59 $", "", true),
            ("18:31:07 $ 5", "18:29:59 $", "", false),
        ] {
            assert_eq!(is_own_row(row, drawn, discarded), is_own, "{row:?} {drawn:?} {discarded:?}");
        }
    }

    #[test]
    fn a_line_shows_the_text_that_was_typed_or_is_altered() {
        let rows = |rows: &[&str]| rows.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>();
        let echo = |before: &[&str], after: &[&str], text: &str| {
            line_echo(&rows(before), &rows(after), (text.as_bytes(), 40))
        };
        for (row, text) in [
            ("$ cho PFX", "echo PFX"),
            ("$ o alpha betA", "echo alpha beta"),
            ("$ echo alpha-file x", "echo alph\tx"),
        ] {
            assert_eq!(echo(&["out", "$"], &["out", row], text), LineEcho::Altered(row.to_owned()));
            assert_eq!(echo(&["out", "$"], &["job", row], text), LineEcho::AsSent, "a job has written");
        }
        for (row, text) in [
            ("$ echo alpha beta", "echo alpha beta"),
            ("$ echo alph    x", "echo alph\tx"),
            ("$ echo HELLO   12:00", "echo HELLO"),
            ("$ curl a\\?b", "curl a?b"),
            ("$ ...", "echo a long line that is wrapped at the margin"),
            ("$ ...", "for i in 1\ndo x"),
            ("$ ...", "gr\u{fc}n"),
        ] {
            assert_eq!(echo(&["$"], &[row], text), LineEcho::AsSent, "{row:?} {text:?}");
        }
        assert_eq!(echo(&["$"], &["$"], "pwd"), LineEcho::Undrawn);
        assert_eq!(echo(&["$"], &["$"], "  "), LineEcho::AsSent, "nothing to be seen");
    }

    #[test]
    fn a_row_shows_a_text_that_is_long_enough_to_be_told_from_a_prompt() {
        for (row, text, is_shown) in [
            ("$ echo alpha >>out", "echo alpha >>out", true),
            ("$ echo alpha >>out; ls -l   12:00", "echo alpha >>out", true),
            ("> done; echo alpha", "for i in 1\ndone; echo alpha", true),
            ("$ ", "echo alpha >>out", false),
            ("me@host:~/tools $ ", "ls", false),
        ] {
            assert_eq!(shows(row, text.as_bytes()), is_shown, "{row:?} {text:?}");
        }
    }

    #[test]
    fn a_row_shows_the_line_that_was_begun() {
        for (row, begun, is_shown) in [
            ("me@host:~$ rm -rf /", "rm-rf/", true),
            ("-rf /", "rm-rf/", true),
            ("me@host:~$ ", "y", false),
            ("me@host:~$ ls", "", false),
            ("", "y", false),
        ] {
            assert_eq!(ends_with_begun(row, begun), is_shown, "{row:?} {begun:?}");
        }
    }
}
