//! Claude Code's screen: the composer between two rules, a line of hints below it, a line that tells of its work above.

use std::ops::Range;

use super::{Screen, counted, has_prompt, one_line};

/// What stands before the composer's text.
const PROMPT: char = '❯';

/// The shortest line that is taken for a rule.
const RULE_MIN: usize = 10;

/// What turns before the word for its work.
const SPINNER: [char; 7] = ['·', '✢', '✳', '✶', '✻', '✽', '*'];

/// Hints below what looks like the composer and takes no prompt: a search in the prompts before, the list of sessions, a
/// selection.
const NO_COMPOSER: [&str; 4] = ["search prompts:", "no matching prompt:", "enter to open", "-- VISUAL"];

/// The rows of the composer: between the last two rules.
pub(super) fn composer(screen: &Screen) -> Option<Range<usize>> {
    let mut rules =
        screen.texts.iter().enumerate().filter(|(_, line)| is_rule(line)).map(|(row, _)| row).rev();
    let (below, above) = (rules.next()?, rules.next()?);
    let rows = above + 1..below;
    let hints = one_line(&screen.texts[below..]);
    let is_composer = has_prompt(screen.lines.get(rows.start)?, PROMPT)
        && !NO_COMPOSER.iter().any(|words| hints.contains(words));
    is_composer.then_some(rows).filter(|rows| !rows.is_empty())
}

/// Whether the screen is Claude Code's own, its composer on it or not: it draws rules around all that takes keys.
pub(super) fn is_shown(screen: &Screen) -> bool {
    screen.texts.iter().any(|line| is_rule(line))
}

/// Whether a line is one of the rules around the composer; something may be written into it.
pub(super) fn is_rule(line: &str) -> bool {
    let strokes = line.chars().filter(|letter| *letter == '─').count();
    line.starts_with('─') && line.ends_with('─') && strokes >= RULE_MIN
}

/// Whether it works: it says how to interrupt it, or what it does. Not, where it tells of its shortcuts instead.
pub(super) fn works(screen: &Screen) -> Option<bool> {
    let rows = composer(screen)?;
    let hints = one_line(&screen.texts[rows.end..]);
    let above = &screen.texts[..rows.start];
    if hints.contains("esc to interrupt") || doing(above) {
        Some(true)
    } else {
        hints.contains("? for shortcuts").then_some(false)
    }
}

/// Words for background work in the hints below the composer.
const BACKGROUND: [&str; 6] = ["shell", "shells", "agent", "agents", "monitor", "monitors"];

/// The count of background work below the composer: `1 shell · ← for agents`.
pub(super) fn background(screen: &Screen) -> Option<String> {
    let rows = composer(screen)?;
    let below = screen.texts[rows.end..].iter().skip(1);
    below.flat_map(|line| line.split('·')).find_map(|part| counted(part, &BACKGROUND))
}

/// Whether the lines above the composer end with what it does: `✽ Combobulating…`, and prompts that wait below that.
fn doing(above: &[String]) -> bool {
    let own = above.iter().rev().take_while(|line| !line.starts_with(['●', PROMPT]));
    own.into_iter().any(|line| line.starts_with(SPINNER) && line.contains('…'))
}
