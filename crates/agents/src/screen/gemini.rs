//! Gemini CLI's screen: the composer below the last rule, a status line above the rule; a dialog is a box in
//! their place.

use super::{Composer, Screen, claude::is_rule};

/// The texts before the composer's text; the second one in the mode that asks for no permissions.
const PROMPTS: [&str; 2] = [" > ", " * "];
/// The texts before the input in shell mode and in the search for earlier prompts.
const OTHER_PROMPTS: [&str; 2] = [" ! ", " (r:) "];
/// The columns of the text before the input; blank in the further lines of an input.
const INDENT: usize = 3;
/// The placeholder, after a cursor that is drawn only while the terminal has the focus.
const PLACEHOLDER: &str = "  Type your message or @path/to/file";

/// The beginning of the status line while hooks run outside of a turn.
const HOOK_RUNS: &str = "Executing Hook";

/// Returns the state of the composer. `None` if only notes are above it: when it starts, Gemini CLI shows the composer
/// before its startup dialogs. `None` while hooks run: after its start hook it loads its conversation and drops what
/// was typed before.
pub(super) fn composer(screen: &Screen) -> Option<Composer> {
    let (rule, first) = prompt(screen)?;
    let is_note = |line: &String| line.is_empty() || line.starts_with(['⚠', 'ℹ']) || line.starts_with("   ");
    if screen.texts[..rule.saturating_sub(1)].iter().all(is_note) {
        return None;
    }
    if screen.texts[..rule].last().is_some_and(|status| status.trim_start().starts_with(HOOK_RUNS)) {
        return None;
    }
    if OTHER_PROMPTS.iter().any(|other| screen.texts[first].starts_with(other)) {
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

/// True if the line above the rule is a spinner and says how to cancel; false if it is the hint of an idle
/// agent.
pub(super) fn is_working(screen: &Screen) -> Option<bool> {
    composer(screen)?;
    let (rule, _) = prompt(screen)?;
    let status = screen.texts[..rule].last()?.trim();
    let has_spinner = status.starts_with(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter));
    if has_spinner && status.contains("(esc to cancel") {
        Some(true)
    } else {
        (status == "? for shortcuts").then_some(false)
    }
}

/// Returns the lines in the box at the bottom if it has a selection.
pub(super) fn boxed(screen: &Screen) -> Option<Vec<String>> {
    let bottom = screen.bottom()?;
    let edge = screen.texts[bottom].find('╰').filter(|at| screen.texts[bottom][..*at].trim().is_empty())?;
    let top = screen.texts[..bottom].iter().rposition(|line| line.find('╭') == Some(edge))?;
    let inside = screen.texts[top + 1..bottom].iter();
    let strokes = |letter: char| letter.is_whitespace() || "│╭╮╰╯─".contains(letter);
    let lines: Vec<_> = inside.map(|line| line.trim_matches(strokes).to_owned()).collect();
    lines.iter().any(|line| line.starts_with('●')).then_some(lines)
}

/// True if the screen is Gemini CLI's, with a box or with a composer that need not be ready.
pub(super) fn is_shown(screen: &Screen) -> bool {
    let has_box = screen.bottom().is_some_and(|bottom| screen.texts[bottom].trim_start().starts_with('╰'));
    has_box || prompt(screen).is_some()
}

/// Returns the last rule and the first row of the composer below it.
fn prompt(screen: &Screen) -> Option<(usize, usize)> {
    let rule = screen.texts.iter().rposition(|line| is_rule(line))?;
    let is_first =
        |line: &String| PROMPTS.iter().chain(&OTHER_PROMPTS).any(|prompt| line.starts_with(prompt));
    Some((rule, rule + screen.texts[rule..].iter().position(is_first)?))
}
