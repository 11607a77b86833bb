//! Parser of the output of `tmux capture-pane -p -e`: letters with SGR sequences between them, whose
//! attributes persist across lines.

/// One letter of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) letter: char,
    /// Faint: in a composer, a placeholder.
    pub(super) dim: bool,
    /// Inverted: in most cases the cursor.
    pub(super) inverse: bool,
}

impl Cell {
    pub(super) fn is_blank(self) -> bool {
        self.letter.is_whitespace()
    }
}

/// The current attributes.
#[derive(Debug, Clone, Copy, Default)]
struct Pen {
    dim: bool,
    inverse: bool,
}

impl Pen {
    /// Applies the parameters of an SGR sequence.
    fn set(&mut self, parameters: &str) {
        let mut codes = parameters.split(';');
        while let Some(code) = codes.next() {
            match code {
                "" | "0" => *self = Self::default(),
                "2" => self.dim = true,
                "22" => self.dim = false,
                "7" => self.inverse = true,
                "27" => self.inverse = false,
                // A colour: its kind follows, then as many numbers as the kind has.
                "38" | "48" | "58" => {
                    let numbers = match codes.next() {
                        Some("5") => 1,
                        Some("2") => 3,
                        _ => 0,
                    };
                    codes.by_ref().take(numbers).for_each(drop);
                }
                _ => {}
            }
        }
    }
}

/// Parses a capture into lines.
pub(super) fn read(capture: &[u8]) -> Vec<Vec<Cell>> {
    let text = String::from_utf8_lossy(capture);
    let mut pen = Pen::default();
    text.lines().map(|line| read_line(line, &mut pen)).collect()
}

fn read_line(line: &str, pen: &mut Pen) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        rest = if letter == '\u{1b}' { skip_sequence(after, pen) } else { after };
        if !letter.is_control() {
            cells.push(Cell { letter, dim: pen.dim, inverse: pen.inverse });
        }
    }
    cells
}

/// Applies the sequence after an ESC and returns the rest of the text.
fn skip_sequence<'a>(text: &'a str, pen: &mut Pen) -> &'a str {
    if let Some(text) = text.strip_prefix('[') {
        let Some(end) = text.find(|c| ('\u{40}'..='\u{7e}').contains(&c)) else { return "" };
        if text[end..].starts_with('m') {
            pen.set(&text[..end]);
        }
        return &text[end + 1..];
    }
    if let Some(text) = text.strip_prefix(']') {
        // A hyperlink.
        return text.find("\u{1b}\\").map_or("", |end| &text[end + 2..]);
    }
    let mut letters = text.chars();
    // The designation of a character set has one more letter.
    if letters.next().is_some_and(|first| matches!(first, '(' | ')')) {
        letters.next();
    }
    letters.as_str()
}
