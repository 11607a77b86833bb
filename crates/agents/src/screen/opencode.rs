//! OpenCode's screen: a composer with a bar at its left, whose last rows name the model; a status line below
//! it. A question replaces the composer, with the same bar but no bottom edge. An overlay hides the cursor.

use super::{Composer, Screen};

/// The bar at the left of the composer, of prompts and of questions.
const BAR: char = '┃';
/// The first letter of the composer's bottom edge.
const EDGE: char = '╹';
/// Rows below the composer's text: an empty one and the model's.
const BELOW: usize = 2;
/// Columns from the bar to the text.
const INDENT: u16 = 3;
/// The text in place of the model in shell mode.
const SHELL: &str = "Shell";
/// The beginning of the placeholder in the composer of a new conversation.
const PLACEHOLDER: &str = "Ask anything…";

/// Returns the rows of the composer's text and the column of its bottom edge.
fn rows(screen: &Screen) -> Option<(std::ops::Range<usize>, u16)> {
    let edge = edge(screen)?;
    let above = count_barred(&screen.texts[..edge]);
    let column = u16::try_from(screen.lines[edge].iter().position(|cell| cell.letter == EDGE)?).ok()?;
    // The edge may be in the first row of what is captured.
    (above > BELOW).then(|| (edge - above..edge - BELOW, column))
}

/// Returns the row of the composer's bottom edge.
fn edge(screen: &Screen) -> Option<usize> {
    screen.texts.iter().rposition(|line| line.trim_start().starts_with(EDGE))
}

/// Returns the number of consecutive rows with a bar at the end of `lines`.
fn count_barred(lines: &[String]) -> usize {
    lines.iter().rev().take_while(|line| has_bar(line)).count()
}

fn has_bar(line: &str) -> bool {
    line.trim_start().starts_with(BAR)
}

/// Returns the text after the bar.
fn after_bar(line: &str) -> &str {
    line.trim_start().trim_start_matches(BAR).trim()
}

/// Returns the state of the composer; none if the cursor is outside of it.
pub(super) fn composer(screen: &Screen, (column, row): (u16, u16)) -> Option<Composer> {
    let (rows, edge) = rows(screen)?;
    let is_shell = after_bar(&screen.texts[rows.end + 1]) == SHELL;
    if !rows.contains(&row.into()) || column < edge + INDENT || is_shell {
        return None;
    }
    let text = rows.rev().map(|row| after_bar(&screen.texts[row])).find(|text| !text.is_empty());
    Some(match text {
        Some(text) if text.starts_with(PLACEHOLDER) && column == edge + INDENT => Composer::Empty,
        Some(text) => Composer::Holds(text.to_owned()),
        None => Composer::Empty,
    })
}

/// True if a line below the composer says how to interrupt the turn.
pub(super) fn is_working(screen: &Screen) -> Option<bool> {
    let below = &screen.texts[edge(screen)? + 1..];
    let is_status = |line: &String| line.contains("esc interrupt") || line.contains("esc again to interrupt");
    Some(below.iter().any(is_status))
}

/// Returns the lines of a question in the composer's place.
pub(super) fn boxed(screen: &Screen) -> Option<Vec<String>> {
    let bottom = screen.texts.iter().rposition(|line| has_bar(line))?;
    if edge(screen).is_some_and(|edge| edge > bottom) {
        return None;
    }
    let above = count_barred(&screen.texts[..=bottom]);
    let lines: Vec<_> =
        screen.texts[..=bottom][bottom + 1 - above..].iter().map(|line| after_bar(line).to_owned()).collect();
    lines.iter().any(|line| line.contains("enter confirm") || line.contains("enter submit")).then_some(lines)
}

/// True if the screen is OpenCode's, with the composer or a question in its place.
pub(super) fn is_shown(screen: &Screen) -> bool {
    rows(screen).is_some() || boxed(screen).is_some()
}
