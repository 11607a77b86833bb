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
/// it did, or keys were pressed (last `keys_at`); or shows what the pool typed without Enter. False if the log does not tell.
/// A shell that `edits_lines` tells in its log when it begins to; of another one, a program may have told that, and its end
/// got lost.
pub(crate) async fn is_left(
    daemon: &Daemon,
    (session, tag): (SessionId, Tag),
    seen: &tmux::PaneSnapshot,
    (keys_at, line): (Option<Timestamp>, KeyLine),
    edits_lines: bool,
) -> bool {
    let screen = Screen::new(&seen.screen);
    let row = cursor_row(&screen, seen);
    if ends_with_begun(row, &line.begun) || !line.abandoned.is_empty() && row == line.abandoned {
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
    let is_own = is_own_row(row, &prompt.row, &line.discarded);
    was_there && !is_own && (edits_lines || !prompt.is_below || is_drawn_again(row, &prompt.row))
}

/// True if the row with the cursor ends with what `poolctl keys` typed without Enter.
pub(crate) fn shows_begun(seen: &tmux::PaneSnapshot, line: &KeyLine) -> bool {
    ends_with_begun(cursor_row(&Screen::new(&seen.screen), seen), &line.begun)
}

/// True if a row begins with the shell's prompt, as below a list of completions.
fn is_drawn_again(row: &str, drawn: &str) -> bool {
    let drawn: String = letters(drawn).collect();
    letters(row).collect::<String>().starts_with(&drawn)
}

/// Returns the row with the cursor.
pub(crate) fn cursor_row<'a>(screen: &'a Screen, seen: &tmux::PaneSnapshot) -> &'a str {
    screen.lines().nth(seen.cursor.1.into()).unwrap_or_default()
}

/// True if a row is as the shell drew it, perhaps together with what `poolctl keys` had typed before and has discarded
/// since.
fn is_own_row(row: &str, drawn: &str, discarded: &str) -> bool {
    let (row, drawn): (String, String) = (letters(row).collect(), letters(drawn).collect());
    row == drawn || !discarded.is_empty() && drawn.strip_suffix(discarded) == Some(&row)
}

/// Number of letters at the end of a text that are looked for in a shell's line.
const TEXT_LETTERS: usize = 200;

/// Returns the row with the cursor if it does not show the end of a text that was typed into a shell's line: a key may have
/// been pressed before, or its editor took the text as commands. Only plain text is compared.
pub(crate) fn altered_row(seen: &tmux::PaneSnapshot, text: &[u8]) -> Option<String> {
    let screen = Screen::new(&seen.screen);
    let rows: Vec<&str> = screen.lines().take(usize::from(seen.cursor.1) + 1).collect();
    let area = usize::from(seen.size.width) * usize::from(seen.size.height);
    let wanted = plain_end(text).filter(|wanted| wanted.len() * 2 <= area)?;
    (!shows_end(&rows, &wanted)).then(|| rows.last().copied().unwrap_or_default().to_owned())
}

/// True if the last row shows the end of this text, which may begin in a row above. At the right margin, the cursor is in an
/// empty row below.
fn shows_end(rows: &[&str], wanted: &str) -> bool {
    let rows = match rows.split_last() {
        Some((last, above)) if last.trim().is_empty() => above,
        _ => rows,
    };
    let Some((last, above)) = rows.split_last() else { return false };
    let shown = |rows: &[&str]| rows.iter().flat_map(|row| unquoted(row)).collect::<String>();
    let is_shown = shown(rows).rfind(wanted).is_some_and(|at| at + wanted.len() > shown(above).len());
    // An editor that keeps to one row shows the end of a long line behind this mark.
    let scrolled: Option<String> = last.strip_prefix('<').map(|end| unquoted(end).collect());
    is_shown || scrolled.is_some_and(|end| !end.is_empty() && wanted.ends_with(&end))
}

/// Returns the end of the last line of a text as [`unquoted`] letters; `None` if it is not plain.
fn plain_end(text: &[u8]) -> Option<String> {
    let last = text.rsplit(|byte| matches!(byte, b'\n' | b'\r')).next()?;
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    let line = std::str::from_utf8(last).ok().filter(|_| last.iter().all(is_plain))?;
    let letters: Vec<char> = unquoted(line).collect();
    let end = &letters[letters.len().saturating_sub(TEXT_LETTERS)..];
    (!end.is_empty()).then(|| end.iter().collect())
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
fn ends_with_begun(row: &str, begun: &str) -> bool {
    let (row, begun): (Vec<char>, Vec<char>) = (letters(row).collect(), begun.chars().collect());
    let shown = row.len().min(begun.len());
    shown > 0 && row[row.len() - shown..] == begun[begun.len() - shown..]
}

#[cfg(test)]
mod tests {
    use super::{ends_with_begun, is_own_row, plain_end, shows_end};

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
    fn a_line_shows_the_text_that_was_typed_or_is_altered() {
        let shows = |rows: &[&str], text: &str| plain_end(text.as_bytes()).map(|end| shows_end(rows, &end));
        assert_eq!(shows(&["$ echo alpha beta"], "echo alpha beta"), Some(true));
        assert_eq!(shows(&["$ cho PFX"], "echo PFX"), Some(false), "a key before it took a letter");
        assert_eq!(shows(&["$ echo PFX", "PFX", "$ cho PFX"], "echo PFX"), Some(false), "an earlier line");
        assert_eq!(shows(&["$ o alpha betA"], "echo alpha beta"), Some(false), "it was taken as commands");
        assert_eq!(shows(&["$ echo alpha-file x"], "echo alph\tx"), Some(false), "its tab completed a name");
        assert_eq!(shows(&["$ echo alph    x"], "echo alph\tx"), Some(true));
        assert_eq!(shows(&["$ rm beta-echo HELLO   12:00"], "echo HELLO"), Some(true), "time at the right");
        assert_eq!(shows(&["~/src $ echo a lo", "ng line"], "echo a long line"), Some(true), "it is wrapped");
        assert_eq!(shows(&["$ echo ab", ""], "echo ab"), Some(true), "it ends at the right margin");
        assert_eq!(shows(&["<ng line"], "echo a long line"), Some(true), "its row is scrolled");
        assert_eq!(shows(&["$ curl a\\?b"], "curl a?b"), Some(true), "quoted by the shell");
        assert_eq!(shows(&["$ for i in 1", "> do x"], "for i in 1\ndo x"), Some(true), "its last line");
        for text in ["echo ok\n", "", " ", "gr\u{fc}n", "\u{1b}[A"] {
            assert_eq!(shows(&["$ "], text), None, "{text:?}");
        }
        assert_eq!(shows(&["$ "], &"x".repeat(500)), Some(false));
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
