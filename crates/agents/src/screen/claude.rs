//! Claude Code's screen: the composer between two rules, a line of hints below it, a status line above it.

use std::ops::Range;

use super::{Screen, has_prompt, one_line, parse_count};

/// The character before the composer's text.
const PROMPT: char = '❯';

/// The fewest strokes of a rule.
const RULE_MIN: usize = 10;

/// The frames of the spinner that begins the status line.
const SPINNER: [char; 7] = ['·', '✢', '✳', '✶', '✻', '✽', '*'];

/// Hints below an input that looks like the composer but takes no prompt: the search in earlier prompts, the
/// list of sessions, a selection.
const NO_COMPOSER: [&str; 4] = ["search prompts:", "no matching prompt:", "enter to open", "-- VISUAL"];

/// Returns the rows of the composer, which are between the last two rules.
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

/// True if the screen is Claude Code's, with or without the composer: it draws rules around everything that
/// takes keys.
pub(super) fn is_shown(screen: &Screen) -> bool {
    screen.texts.iter().any(|line| is_rule(line))
}

/// True if a line is one of the rules around the composer; a rule may contain a label.
pub(super) fn is_rule(line: &str) -> bool {
    let strokes = line.chars().filter(|letter| *letter == '─').count();
    line.starts_with('─') && line.ends_with('─') && strokes >= RULE_MIN
}

/// True if a hint says how to interrupt the turn or a status line is shown; false if the hints are those of
/// an idle agent.
pub(super) fn is_working(screen: &Screen) -> Option<bool> {
    let rows = composer(screen)?;
    let hints = one_line(&screen.texts[rows.end..]);
    let above = &screen.texts[..rows.start];
    if hints.contains("esc to interrupt") || has_status_line(above) {
        Some(true)
    } else {
        hints.contains("? for shortcuts").then_some(false)
    }
}

/// The nouns for background work in the hints below the composer.
const BACKGROUND: [&str; 6] = ["shell", "shells", "agent", "agents", "monitor", "monitors"];

/// Returns the count of background work from a line below the composer such as `1 shell · ← for agents`.
pub(super) fn background(screen: &Screen) -> Option<String> {
    let rows = composer(screen)?;
    let below = screen.texts[rows.end..].iter().skip(1);
    below.flat_map(|line| line.split('·')).find_map(|part| parse_count(part, &BACKGROUND))
}

/// True if the lines above the composer end with a status line (`✽ Combobulating…`), below which queued
/// prompts may follow.
fn has_status_line(above: &[String]) -> bool {
    let last = above.iter().rev().take_while(|line| !line.starts_with(['●', PROMPT]));
    last.into_iter().any(|line| line.starts_with(SPINNER) && line.contains('…'))
}
