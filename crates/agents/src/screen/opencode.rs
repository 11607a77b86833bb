//! OpenCode's screen: a composer with a bar at its left, whose last rows name the model; a line below it that tells of its
//! work. A question stands in its place, with the same bar and without a bottom edge. What lies over it hides the cursor.

use super::{Composer, Screen};

/// The bar at the left of what is written by its user, or asked.
const BAR: char = '┃';
/// The first letter of the composer's bottom edge.
const EDGE: char = '╹';
/// Rows below the text in the composer: an empty one, and the model's.
const BELOW: usize = 2;
/// Columns from the bar to the text.
const INDENT: u16 = 3;
/// Stands in the place of the model while the composer takes a line for the shell.
const SHELL: &str = "Shell";
/// The beginning of the placeholder in the composer of a new conversation.
const PLACEHOLDER: &str = "Ask anything…";

/// The rows from the first with a bar to the composer's bottom edge, and the edge's column.
fn rows(screen: &Screen) -> Option<(std::ops::Range<usize>, u16)> {
    let edge = edge(screen)?;
    let above = barred(&screen.texts[..edge]);
    let column = screen.lines[edge].iter().position(|cell| cell.letter == EDGE)?;
    (above > BELOW).then_some((edge - above..edge - BELOW, u16::try_from(column).ok()?))
}

/// The row of the composer's bottom edge.
fn edge(screen: &Screen) -> Option<usize> {
    screen.texts.iter().rposition(|line| line.trim_start().starts_with(EDGE))
}

/// The number of rows with a bar at the end of these.
fn barred(lines: &[String]) -> usize {
    lines.iter().rev().take_while(|line| has_bar(line)).count()
}

fn has_bar(line: &str) -> bool {
    line.trim_start().starts_with(BAR)
}

/// The text behind the bar.
fn behind_bar(line: &str) -> &str {
    line.trim_start().trim_start_matches(BAR).trim()
}

/// The content of the composer; none where the cursor is not in it.
pub(super) fn composer(screen: &Screen, (column, row): (u16, u16)) -> Option<Composer> {
    let (rows, edge) = rows(screen)?;
    let is_shell = behind_bar(&screen.texts[rows.end + 1]) == SHELL;
    if !rows.contains(&row.into()) || column < edge + INDENT || is_shell {
        return None;
    }
    let text = rows.rev().map(|row| behind_bar(&screen.texts[row])).find(|text| !text.is_empty());
    Some(match text {
        Some(text) if text.starts_with(PLACEHOLDER) && column == edge + INDENT => Composer::Empty,
        Some(text) => Composer::Holds(text.to_owned()),
        None => Composer::Empty,
    })
}

/// True while it works: the lines below the composer say how to interrupt it.
pub(super) fn works(screen: &Screen) -> Option<bool> {
    let below = &screen.texts[edge(screen)? + 1..];
    let tells = |line: &String| line.contains("esc interrupt") || line.contains("esc again to interrupt");
    Some(below.iter().any(tells))
}

/// The lines of a question in the composer's place.
pub(super) fn boxed(screen: &Screen) -> Option<Vec<String>> {
    let bottom = screen.texts.iter().rposition(|line| has_bar(line))?;
    if edge(screen).is_some_and(|edge| edge > bottom) {
        return None;
    }
    let above = barred(&screen.texts[..=bottom]);
    let lines: Vec<_> = screen.texts[..=bottom][bottom + 1 - above..]
        .iter()
        .map(|line| behind_bar(line).to_owned())
        .collect();
    lines.iter().any(|line| line.contains("enter confirm") || line.contains("enter submit")).then_some(lines)
}

/// True for a screen of its own, with the composer or a question in its place.
pub(super) fn is_shown(screen: &Screen) -> bool {
    rows(screen).is_some() || boxed(screen).is_some()
}
