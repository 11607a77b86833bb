//! Renders a page as text that is filled to a width, for terminals and pipes, and the tables of man pages.

use super::markdown::{self, Block, Span};
use crate::show::out::Style;

/// Blanks before everything but headings.
const INDENT: usize = 4;
/// Blanks between two columns of a table.
const GAP: usize = 2;
/// No column of a table is made narrower than this to make the table fit.
const COLUMN_MIN: usize = 12;
/// The code of bold text.
const BOLD: u8 = 1;

/// Text between two blanks: pieces, each bold or not.
type Word = Vec<(bool, String)>;

/// A line, and the columns that it takes on a terminal.
#[derive(Debug, Default)]
struct Line {
    text: String,
    width: usize,
}

/// Renders a page for lines of this many columns.
pub(crate) fn page(page: &str, width: usize, style: Style) -> String {
    let mut text = String::new();
    for block in markdown::blocks(page) {
        if !text.is_empty() {
            text.push('\n');
        }
        match block {
            Block::Heading(1 | 2, title) => text.push_str(&style.paint(BOLD, &title.to_uppercase())),
            Block::Heading(_, title) => text.push_str(&style.paint(BOLD, &format!("  {title}"))),
            block => {
                let lines = lines(&block, width.saturating_sub(INDENT), style);
                let indented = lines.iter().map(|line| indent(line));
                text.push_str(&indented.collect::<Vec<_>>().join("\n"));
            }
        }
        text.push('\n');
    }
    text
}

fn indent(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("{:INDENT$}{line}", "") }
}

fn lines(block: &Block<'_>, width: usize, style: Style) -> Vec<String> {
    match block {
        Block::Heading(_, text) => vec![(*text).to_owned()],
        Block::Paragraph(text) => fill(text, width, style).into_iter().map(|line| line.text).collect(),
        Block::Code(lines) => lines.iter().map(|line| indent(line)).collect(),
        Block::List(items) => items.iter().flat_map(|(mark, text)| item(mark, text, width, style)).collect(),
        Block::Table(rows) => table(rows, width, style),
    }
}

fn item(mark: &str, text: &str, width: usize, style: Style) -> Vec<String> {
    let hang = mark.len() + 1;
    let lines = fill(text, width.saturating_sub(hang), style).into_iter().enumerate();
    lines.map(|(at, Line { text, .. })| format!("{:hang$}{text}", if at == 0 { mark } else { "" })).collect()
}

/// Renders a table with aligned columns. Where it is too wide, its widest columns are made narrower.
pub(crate) fn table(rows: &[Vec<String>], width: usize, style: Style) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let natural = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.flat_map(|cell| fill(cell, usize::MAX, style)).map(|line| line.width).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(natural).collect();
    let room = width.saturating_sub(GAP * columns.saturating_sub(1));
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > COLUMN_MIN) else { break };
        *widest -= 1;
    }
    rows.iter().flat_map(|row| table_row(row, &widths, style)).collect()
}

/// The lines of a row: as many as its highest cell has.
fn table_row(row: &[String], widths: &[usize], style: Style) -> Vec<String> {
    let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| fill(cell, *width, style)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |at: usize| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let (text, used) = cell.get(at).map_or(("", 0), |line| (line.text.as_str(), line.width));
            line.push_str(text);
            line.extend(std::iter::repeat_n(' ', (width + GAP).saturating_sub(used)));
        }
        line.truncate(line.trim_end().len());
        line
    };
    (0..height).map(line).collect()
}

/// Breaks a text into lines of at most this width, where its words allow it.
fn fill(text: &str, width: usize, style: Style) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    for word in words(text, style) {
        let length: usize = word.iter().map(|(_, piece)| piece.chars().count()).sum();
        if lines.last().is_some_and(|line| line.width > 0 && line.width + 1 + length > width) {
            lines.push(Line::default());
        }
        let Some(line) = lines.last_mut() else { break };
        if line.width > 0 {
            line.text.push(' ');
            line.width += 1;
        }
        for (bold, piece) in &word {
            line.text.push_str(&if *bold { style.paint(BOLD, piece) } else { piece.clone() });
        }
        line.width += length;
    }
    lines
}

/// The words of a text. Code keeps its marks where nothing is painted.
fn words(text: &str, style: Style) -> Vec<Word> {
    let mut words: Vec<Word> = vec![Vec::new()];
    let mut add = |text: &str, bold: bool| {
        for (at, piece) in text.split(' ').enumerate() {
            if at > 0 {
                words.push(Vec::new());
            }
            if let Some(word) = words.last_mut().filter(|_| !piece.is_empty()) {
                word.push((bold, piece.to_owned()));
            }
        }
    };
    for span in markdown::spans(text) {
        match span {
            Span::Plain(text) | Span::Emphasis(text) => add(text, false),
            Span::Code(text) if style.colour => add(text, true),
            Span::Code(text) => add(&format!("`{text}`"), false),
            Span::Strong(text) | Span::Link(text, _) => add(text, style.colour),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Slots: few for many\n\nA `slot` is the right to **run**; see [locks](locks.md).\n\n\
        ## Ask\n- first `poolctl ls` and then more\n\n```sh\npoolctl ls\n```\n\n\
        | key | meaning |\n|---|---|\n| `a` | one two three four five six |\n";

    #[test]
    fn it_is_filled_to_the_width_and_tables_line_up() {
        let expected = "SLOTS: FEW FOR MANY\n\n    A `slot` is the right to run;\n    see locks.\n\n\
            ASK\n\n    - first `poolctl ls` and then\n      more\n\n        poolctl ls\n\n    \
            key  meaning\n    `a`  one two three four five\n         six\n";
        assert_eq!(page(PAGE, 34, Style::default()), expected);
    }

    #[test]
    fn on_a_colour_terminal_marks_become_bold() {
        let style = Style { colour: true, ..Style::default() };
        let text = page(PAGE, 80, style);
        assert!(
            text.starts_with("\x1b[1mSLOTS: FEW FOR MANY\x1b[0m\n\n    A \x1b[1mslot\x1b[0m is"),
            "{text}"
        );
        assert!(text.contains("key  meaning\n    \x1b[1ma\x1b[0m    one two three"), "{text}");
    }
}
