//! A line that somebody began to type in a shell and left: a prompt would be appended to it, and both run.

use std::time::Duration;

use pool::prompt::KeyLine;
use protocol::{SessionId, Tag, Timestamp};

use agents::screen::Screen;

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;

/// Longest time between the press of a key and the record of it, either of which may come first.
const ECHO_LIMIT: Duration = Duration::from_millis(500);

/// True if the row with the cursor ends with what `poolctl keys` typed without Enter, perhaps while the command before still
/// ran; or has changed since the shell's own prompt was drawn there, and somebody was at the terminal when
/// it did, or keys were pressed (last `keys_at`). False if the log does not tell.
pub(crate) async fn is_left(
    daemon: &Daemon,
    (session, tag): (SessionId, Tag),
    seen: &tmux::PaneSnapshot,
    (keys_at, line): (Option<Timestamp>, KeyLine),
) -> bool {
    let screen = Screen::new(&seen.screen);
    let row = screen.lines().nth(seen.cursor.1.into()).unwrap_or_default();
    if ends_with_begun(row, &line.begun) {
        return true;
    }
    let Some(active_at) = seen.active_at else { return false };
    let (dir, size) = (daemon.paths.logs_of(session), (seen.size.height, seen.size.width));
    let read = move || logs::paused_line(&dir, tag, size).ok().flatten();
    let Some(prompt) = daemon.blocking.with_timeout(Purpose::Logs, read).await.flatten() else {
        return false;
    };
    // The activity of a person is known to the second. The Enter of a command is older than a pause in that
    // command's output, so that a shell's prompt on the same row is nobody's line.
    let person = Timestamp(active_at.saturating_mul(1000).saturating_add(999));
    let keys = keys_at.map(|at| at.after(ECHO_LIMIT));
    let was_there = move |turn: &mut Turn<'_>| {
        let was_before = |at| turn.pool().is_surely_earlier(turn.now(), at, prompt.resumed_at);
        !was_before(person) || keys.is_some_and(|at| !was_before(at))
    };
    let was_there = daemon.engine.turn(was_there).await.unwrap_or(true);
    was_there && !is_own_row(row, &prompt.row, &line.discarded)
}

/// True if a row is as the shell drew it, perhaps together with what `poolctl keys` had typed before and has discarded
/// since.
fn is_own_row(row: &str, drawn: &str, discarded: &str) -> bool {
    let (row, drawn): (String, String) = (letters(row).collect(), letters(drawn).collect());
    row == drawn || !discarded.is_empty() && drawn.strip_suffix(discarded) == Some(&row)
}

/// Returns the letters of a row. Blanks do not count: a text at the right margin moves with the terminal's size.
fn letters(row: &str) -> impl Iterator<Item = char> {
    row.chars().filter(|letter| !letter.is_whitespace())
}

/// True if a row ends with the line that was begun, or all of the row is the end of it.
fn ends_with_begun(row: &str, begun: &str) -> bool {
    let (row, begun): (Vec<char>, Vec<char>) = (letters(row).collect(), begun.chars().collect());
    let shown = row.len().min(begun.len());
    shown > 0 && row[row.len() - shown..] == begun[begun.len() - shown..]
}

#[cfg(test)]
mod tests {
    use super::{ends_with_begun, is_own_row};

    #[test]
    fn a_row_is_the_shells_own_once_what_was_drawn_with_it_is_discarded() {
        for (row, drawn, discarded, is_own) in [
            ("$ ", "$ ", "", true),
            ("$ ", "$ rm -r", "rm-r", true),
            ("$ rm", "$ rm -r", "rm-r", false),
            ("$ ", "$ rm -r", "", false),
            ("$ ls", "$ ", "", false),
        ] {
            assert_eq!(is_own_row(row, drawn, discarded), is_own, "{row:?} {drawn:?} {discarded:?}");
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
