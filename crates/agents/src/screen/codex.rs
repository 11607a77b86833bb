//! Codex's screen: the composer where the cursor is, a line that tells of its work above, hints below.

use std::ops::Range;

use super::{Screen, counted, has_prompt};

/// What stands before the composer's text.
const PROMPT: char = '›';

/// In and below the composer of a conversation beside the one that the session is about.
const SIDE: [&str; 2] = ["Ask a follow-up question", "· ^/ to switch"];

/// Where the cursor is in an empty composer. That of a dialog which is drawn above one may be in its row, further on.
pub(super) const TEXT_COLUMN: u16 = 2;

/// All that stands below it while Codex still starts: it shows a composer then, and a moment later perhaps a dialog in its place.
const STARTING: &str = "? for shortcuts";

/// The rows of the composer: those around the cursor, from the prompt character to the empty line above the hints.
pub(super) fn composer(screen: &Screen, cursor: usize) -> Option<Range<usize>> {
    let below = screen.texts.get(cursor + 1..)?;
    let end = cursor + 1 + below.iter().position(String::is_empty)?;
    // In a dialog the cursor is parked below everything.
    if screen.bottom()? < end {
        return None;
    }
    let start = (0..=cursor).rev().find(|row| !continues(&screen.texts[*row]))?;
    let elsewhere = screen.texts[start..].iter().any(|line| SIDE.iter().any(|words| line.contains(words)));
    let takes = has_prompt(&screen.lines[start], PROMPT) && !elsewhere && !is_starting(&screen.texts[end..]);
    takes.then_some(start..end)
}

/// Whether these lines, below a composer, are those of a Codex that starts.
fn is_starting(below: &[String]) -> bool {
    below.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).eq([STARTING])
}

/// Whether the screen is Codex's own, its composer with the cursor in it or not, and ready.
pub(super) fn is_shown(screen: &Screen) -> bool {
    let prompt = screen.lines.iter().rposition(|line| has_prompt(line, PROMPT));
    prompt.is_some_and(|row| !is_starting(&screen.texts[row + 1..]))
}

/// Whether a line can be the second or a later one of a text.
fn continues(line: &str) -> bool {
    line.is_empty() || line.starts_with("  ")
}

/// Words for background work above the composer.
const BACKGROUND: [&str; 2] = ["background terminal running", "background terminals running"];

/// The count of background work above the composer: `1 background terminal running · /ps to view`.
pub(super) fn background(screen: &Screen) -> Option<String> {
    let above = screen.texts.iter().rev().skip_while(|line| !line.starts_with([PROMPT, '!'])).skip(1);
    let line = above.into_iter().find(|line| !line.is_empty())?;
    line.split('·').find_map(|part| counted(part, &BACKGROUND))
}

/// Whether it works, by the last thing above the composer that tells: for how long it has worked and how to interrupt it,
/// or that the turn is over.
pub(super) fn works(screen: &Screen) -> Option<bool> {
    let mut above = screen.texts.iter().rev().skip_while(|line| !line.starts_with([PROMPT, '!']));
    above.next()?;
    above.find_map(|line| match line.chars().next()? {
        '◦' | '•' => line.contains("esc to interrupt)").then_some(Some(true)),
        '■' => Some(Some(false)),
        PROMPT => Some(None),
        _ => line.starts_with("  Worked for ").then_some(Some(false)),
    })?
}
