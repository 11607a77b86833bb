//! Gemini CLI's screen: the composer below the last rule, a line that tells of its work above it; a dialog is a box in
//! their place.

use super::{Composer, Screen, claude::is_rule};

/// What stands before the composer's text; the last where it does without asking for permissions.
const PROMPTS: [&str; 2] = [" > ", " * "];
/// The same for a line for the shell, and where old prompts are searched.
const OTHERS: [&str; 2] = [" ! ", " (r:) "];
/// How many columns that takes, in which the later lines of a text are blank.
const INDENT: usize = 3;
/// What it says where nothing is written: behind its cursor, which is drawn only while its terminal has the focus.
const PLACEHOLDER: &str = "  Type your message or @path/to/file";

/// What the composer holds, where it is seen. None while nothing but notes stands above it: Gemini CLI shows one before it asks
/// what it asks at its start.
pub(super) fn composer(screen: &Screen) -> Option<Composer> {
    let (rule, first) = prompt(screen)?;
    let is_note = |line: &String| line.is_empty() || line.starts_with(['⚠', 'ℹ']) || line.starts_with("   ");
    if screen.texts[..rule.saturating_sub(1)].iter().all(is_note) {
        return None;
    }
    if OTHERS.iter().any(|other| screen.texts[first].starts_with(other)) {
        return Some(Composer::Holds(screen.texts[first].trim().to_owned()));
    }
    let later = screen.texts[first + 1..]
        .iter()
        .take_while(|line| line.is_empty() || line.starts_with("   "))
        .count();
    let rows = &screen.lines[first..=first + later];
    let text = |row: &[super::Cell]| row.iter().skip(INDENT).map(|cell| cell.letter).collect::<String>();
    if text(&rows[0]).trim_end() == PLACEHOLDER {
        return Some(Composer::Empty);
    }
    let lines = rows.iter().rev().map(|row| text(row).trim().to_owned());
    Some(Composer::Holds(lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default()))
}

/// Whether it works: the line above the rule says how to interrupt it. Not, where it tells of its shortcuts alone.
pub(super) fn works(screen: &Screen) -> Option<bool> {
    composer(screen)?;
    let (rule, _) = prompt(screen)?;
    let told = screen.texts[..rule].last()?.trim();
    let turns = told.starts_with(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter));
    if turns && told.contains("(esc to cancel") {
        Some(true)
    } else {
        (told == "? for shortcuts").then_some(false)
    }
}

/// What the box says that stands at the bottom and has something to choose from.
pub(super) fn boxed(screen: &Screen) -> Option<Vec<String>> {
    let bottom = screen.bottom()?;
    let edge = screen.texts[bottom].find('╰').filter(|at| screen.texts[bottom][..*at].trim().is_empty())?;
    let top = screen.texts[..bottom].iter().rposition(|line| line.find('╭') == Some(edge))?;
    let inside = screen.texts[top + 1..bottom].iter();
    let strokes = |letter: char| letter.is_whitespace() || "│╭╮╰╯─".contains(letter);
    let lines: Vec<_> = inside.map(|line| line.trim_matches(strokes).to_owned()).collect();
    lines.iter().any(|line| line.starts_with('●')).then_some(lines)
}

/// Whether the screen is its own, with or without a composer that is ready.
pub(super) fn is_shown(screen: &Screen) -> bool {
    let has_box = screen.bottom().is_some_and(|bottom| screen.texts[bottom].trim_start().starts_with('╰'));
    has_box || prompt(screen).is_some()
}

/// The last rule, and the first row of the composer below it.
fn prompt(screen: &Screen) -> Option<(usize, usize)> {
    let rule = screen.texts.iter().rposition(|line| is_rule(line))?;
    let is_first = |line: &String| PROMPTS.iter().chain(&OTHERS).any(|prompt| line.starts_with(prompt));
    Some((rule, rule + screen.texts[rule..].iter().position(is_first)?))
}
