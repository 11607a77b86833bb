//! Parses the Markdown of the manual: headings, paragraphs, code blocks, flat lists and tables; in a line
//! `code`, **strong**, *emphasis* and links. Pages contain nothing else.

/// A part of a page, from one blank line to the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block<'a> {
    /// A heading and its level, from 1.
    Heading(usize, &'a str),
    /// Text that is filled to the width there is.
    Paragraph(String),
    /// Lines that stay as they are.
    Code(Vec<&'a str>),
    /// Items, each with its mark (`-` or `1.`).
    List(Vec<(&'a str, String)>),
    /// Rows of cells; the first row is the header.
    Table(Vec<Vec<String>>),
}

/// A piece of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Span<'a> {
    /// Ordinary text.
    Plain(&'a str),
    /// `code`, without its marks.
    Code(&'a str),
    /// **strong**, without its marks.
    Strong(&'a str),
    /// *emphasis*, without its marks.
    Emphasis(&'a str),
    /// The text of a link, and its target.
    Link(&'a str, &'a str),
}

/// Splits a page into its blocks. Comments (`<!-- … -->`, on lines of their own) are left out.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            continue;
        } else if line.starts_with("<!--") {
            let mut last = line;
            while !last.ends_with("-->") {
                let Some(next) = lines.next() else { break };
                last = next;
            }
        } else if line.starts_with("```") {
            blocks.push(Block::Code(lines.by_ref().take_while(|line| !line.starts_with("```")).collect()));
        } else if let Some(level) = heading(line) {
            blocks.push(Block::Heading(level, line[level..].trim()));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                // The line below the header.
                if !row.chars().all(|c| "|-: ".contains(c)) {
                    rows.push(cells(row));
                }
            }
            blocks.push(Block::Table(rows));
        } else if let Some((mark, text)) = item(line) {
            let mut items = vec![(mark, text.to_owned())];
            while let Some(line) = lines.next_if(|line| line.starts_with("  ") || item(line).is_some()) {
                match item(line) {
                    Some((mark, text)) => items.push((mark, text.to_owned())),
                    None => items.iter_mut().last().into_iter().for_each(|(_, text)| append(text, line)),
                }
            }
            blocks.push(Block::List(items));
        } else {
            let mut text = line.trim().to_owned();
            while let Some(line) = lines.next_if(|line| !line.trim().is_empty() && !begins_block(line)) {
                append(&mut text, line);
            }
            blocks.push(Block::Paragraph(text));
        }
    }
    blocks
}

fn append(text: &mut String, line: &str) {
    text.push(' ');
    text.push_str(line.trim());
}

fn heading(line: &str) -> Option<usize> {
    let level = line.bytes().take_while(|b| *b == b'#').count();
    (level > 0 && line[level..].starts_with(' ')).then_some(level)
}

/// The mark and the text of a list's item.
fn item(line: &str) -> Option<(&str, &str)> {
    let (mark, text) = line.split_once(' ')?;
    let number = mark.strip_suffix('.').is_some_and(|number| number.parse::<u8>().is_ok());
    (mark == "-" || number).then_some((mark, text))
}

fn begins_block(line: &str) -> bool {
    line.starts_with("```")
        || line.starts_with('|')
        || line.starts_with("<!--")
        || heading(line).is_some()
        || item(line).is_some()
}

/// The cells of a table's row; `\|` is a bar within a cell.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    row.replace("\\|", "\u{1}").split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
}

/// Splits a text into its spans. A mark without its second half is ordinary text.
pub(crate) fn spans(text: &str) -> Vec<Span<'_>> {
    let mut spans = Vec::new();
    let (mut plain, mut at) = (0, 0);
    while at < text.len() {
        let Some((span, length)) = marked(&text[at..]) else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        if plain < at {
            spans.push(Span::Plain(&text[plain..at]));
        }
        spans.push(span);
        at += length;
        plain = at;
    }
    if plain < text.len() {
        spans.push(Span::Plain(&text[plain..]));
    }
    spans
}

/// The marked span at the beginning of this text, and how many bytes it takes with its marks.
fn marked(text: &str) -> Option<(Span<'_>, usize)> {
    if let Some(rest) = text.strip_prefix('`') {
        let end = rest.find('`')?;
        return Some((Span::Code(&rest[..end]), end + 2));
    }
    if let Some(rest) = text.strip_prefix("**") {
        let end = rest.find("**")?;
        return Some((Span::Strong(&rest[..end]), end + 4));
    }
    if let Some(rest) = text.strip_prefix('*').filter(|rest| !rest.starts_with(' ')) {
        let end = rest.find('*')?;
        return Some((Span::Emphasis(&rest[..end]), end + 2));
    }
    let rest = text.strip_prefix('[')?;
    let (label, rest) = rest.split_once("](")?;
    let (target, _) = rest.split_once(')')?;
    (!label.contains(['[', ']'])).then_some((Span::Link(label, target), label.len() + target.len() + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title: what it is\n\nTwo lines\nof text.\n<!-- made\nby a test -->\n\n\
        ```sh\npoolctl ls\n\n# not a heading\n```\n- one\n  and more\n- two\n\n\
        | a | b |\n|---|---|\n| `x\\|y` | z |\n\n## Next\n1. first\n2. second\n";

    #[test]
    fn a_page_is_its_blocks_in_order() {
        let list =
            |items: [(&'static str, &str); 2]| Block::List(items.map(|(m, t)| (m, t.to_owned())).into());
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let expected = [
            Block::Heading(1, "Title: what it is"),
            Block::Paragraph("Two lines of text.".to_owned()),
            Block::Code(vec!["poolctl ls", "", "# not a heading"]),
            list([("-", "one and more"), ("-", "two")]),
            Block::Table(vec![row(["a", "b"]), row(["`x|y`", "z"])]),
            Block::Heading(2, "Next"),
            list([("1.", "first"), ("2.", "second")]),
        ];
        assert_eq!(blocks(PAGE), expected);
    }

    #[test]
    fn a_line_is_its_spans() {
        let text = "See **all** of `a*b`, [slots](slots.md) [x] 2 * 3 *or* `";
        let expected = [
            Span::Plain("See "),
            Span::Strong("all"),
            Span::Plain(" of "),
            Span::Code("a*b"),
            Span::Plain(", "),
            Span::Link("slots", "slots.md"),
            Span::Plain(" [x] 2 * 3 "),
            Span::Emphasis("or"),
            Span::Plain(" `"),
        ];
        assert_eq!(spans(text), expected);
    }
}
