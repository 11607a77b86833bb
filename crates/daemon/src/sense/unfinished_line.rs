//! A line that somebody began to type in a shell and left: a prompt would be appended to it, and both run.

use std::time::Duration;

use protocol::{SessionId, Tag, Timestamp};

use agents::screen::Screen;

use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::host::blocking_pool::Purpose;

/// Longest time between the press of a key and the record of it, either of which may come first.
const ECHO_LIMIT: Duration = Duration::from_millis(500);

/// True if the row with the cursor has changed since the shell's own prompt was drawn there, and somebody was at
/// the terminal when it did, or keys were pressed by `poolctl keys` (last `keys_at`). False if the log does not tell.
pub(crate) async fn is_left(
    daemon: &Daemon,
    (session, tag): (SessionId, Tag),
    seen: &tmux::PaneSnapshot,
    keys_at: Option<Timestamp>,
) -> bool {
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
    let screen = Screen::new(&seen.screen);
    let row = screen.lines().nth(seen.cursor.1.into()).unwrap_or_default();
    was_there && letters(row).ne(letters(&prompt.row))
}

/// Returns the letters of a row. Blanks do not count: a text at the right margin moves with the terminal's size.
fn letters(row: &str) -> impl Iterator<Item = char> {
    row.chars().filter(|letter| !letter.is_whitespace())
}
