//! Tables with aligned columns.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use crate::show::escape;

/// The space between two columns.
const GAP: &str = "  ";

/// A table with an optional header. Cells are escaped here, so that no caller can forget it.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// The colours of cells, by row and column.
    painted: BTreeMap<(usize, usize), u8>,
}

impl Table {
    /// Creates a table with this header, or without one if `header` is empty.
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = Self { rows: Vec::new(), painted: BTreeMap::new() };
        if !header.is_empty() {
            table.row(header.iter().map(|&cell| cell.to_owned()));
        }
        table
    }

    /// Adds a row. An empty cell is shown as `-`, so that scripts can split a row at blanks.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |text: String| if text.is_empty() { "-".to_owned() } else { escape::cell(text) };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    /// Paints a cell of the last row by an SGR code.
    pub(crate) fn paint(&mut self, column: usize, code: u8) {
        self.painted.insert((self.rows.len().saturating_sub(1), column), code);
    }

    /// Returns the text, a line per row without blanks at the end.
    pub(crate) fn render(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let mut text =
            String::with_capacity(self.rows.len() * widths.iter().map(|w| w + GAP.len()).sum::<usize>());
        for (at, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match self.painted.get(&(at, column)) {
                    Some(code) => text.push_str(&format!("\x1b[{code}m{cell}\x1b[0m")),
                    None => text.push_str(cell),
                }
                let blanks = width - cell.width() + GAP.len();
                text.extend(std::iter::repeat_n(' ', blanks));
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_are_escaped() {
        let mut table = Table::new(&["ID", "NAME", "WHY"]);
        table.row(["sess_1".into(), "a".into(), String::new()]);
        table.row(["sess_22".into(), "böse\x1b[2J".into(), "x\ny".into()]);
        let expected = "ID       NAME         WHY\nsess_1   a            -\nsess_22  böse\\x1b[2J  x\\ny\n";
        assert_eq!(table.render(), expected);
        assert_eq!(Table::new(&[]).render(), "");
        let mut wide = Table::new(&["NAME", "WHY"]);
        wide.row(["日本".into(), "a".into()]);
        assert_eq!(wide.render(), "NAME  WHY\n日本  a\n");
    }
}
