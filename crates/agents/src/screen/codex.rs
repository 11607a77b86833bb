//! Codex's screen: the composer around the cursor, a status line above it, hints below it.

use std::ops::Range;

use super::{Screen, has_prompt, parse_count};

/// The character before the composer's text.
const PROMPT: char = '›';

/// Texts in and below the composer of a side conversation, which is not the session's conversation.
const SIDE: [&str; 2] = ["Ask a follow-up question", "· ^/ to switch"];

/// The cursor's column in an empty composer. The cursor of a dialog drawn above it may be in the same row,
/// further right.
pub(super) const TEXT_COLUMN: u16 = 2;

/// The only text below the composer while Codex starts; a startup dialog may still replace the composer then.
const STARTING: &str = "? for shortcuts";

/// Returns the rows of the composer: from the prompt character above the cursor to the empty line above the
/// hints.
pub(super) fn composer(screen: &Screen, cursor: usize) -> Option<Range<usize>> {
    let below = screen.texts.get(cursor + 1..)?;
    let end = cursor + 1 + below.iter().position(String::is_empty)?;
    // A dialog puts the cursor below everything.
    if screen.bottom()? < end {
        return None;
    }
    let start = (0..=cursor).rev().find(|row| !continues(&screen.texts[*row]))?;
    let is_side = screen.texts[start..].iter().any(|line| SIDE.iter().any(|words| line.contains(words)));
    let is_ready = has_prompt(&screen.lines[start], PROMPT) && !is_side && !is_starting(&screen.texts[end..]);
    is_ready.then_some(start..end)
}

/// True if the lines below a composer are those of a starting Codex.
fn is_starting(below: &[String]) -> bool {
    below.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).eq([STARTING])
}

/// True if the screen is that of a Codex that has started, with the cursor in the composer or elsewhere.
pub(super) fn is_shown(screen: &Screen) -> bool {
    let prompt = screen.lines.iter().rposition(|line| has_prompt(line, PROMPT));
    prompt.is_some_and(|row| !is_starting(&screen.texts[row + 1..]))
}

/// True if a line may be the second or a later one of a text.
fn continues(line: &str) -> bool {
    line.is_empty() || line.starts_with("  ")
}

/// The nouns for background work above the composer.
const BACKGROUND: [&str; 2] = ["background terminal running", "background terminals running"];

/// Returns the count of background work from a line above the composer such as
/// `1 background terminal running · /ps to view`.
pub(super) fn background(screen: &Screen) -> Option<String> {
    let above = screen.texts.iter().rev().skip_while(|line| !line.starts_with([PROMPT, '!'])).skip(1);
    let line = above.into_iter().find(|line| !line.is_empty())?;
    line.split('·').find_map(|part| parse_count(part, &BACKGROUND))
}

/// True if the last status above the composer is that of a running turn (with `esc to interrupt`), false if
/// it is that of a turn that ended.
pub(super) fn is_working(screen: &Screen) -> Option<bool> {
    let mut above = screen.texts.iter().rev().skip_while(|line| !line.starts_with([PROMPT, '!']));
    above.next()?;
    above.find_map(|line| match line.chars().next()? {
        '◦' | '•' => line.contains("esc to interrupt)").then_some(Some(true)),
        '■' => Some(Some(false)),
        PROMPT => Some(None),
        _ => line.starts_with("  Worked for ").then_some(Some(false)),
    })?
}
