//! Escapes text from agents, messages and users, so that it cannot command a terminal.

use std::fmt::Write;

/// Escapes every control character, for text within one line.
pub(crate) fn line(text: &str) -> String {
    escape(text, is_control)
}

/// As [`line`], without a copy if there is nothing to escape, as in most text.
pub(crate) fn cell(text: String) -> String {
    if text.chars().any(is_control) { line(&text) } else { text }
}

/// Escapes every control character except newline and tab.
pub(crate) fn lines(text: &str) -> String {
    escape(text, |c| is_control(c) && c != '\n' && c != '\t')
}

/// Escapes the control characters that JSON allows. They occur in strings alone, so the document stays the same.
pub(crate) fn json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        if is_control(c) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

fn escape(text: &str, escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if escaped(c) { push_escape(&mut out, c) } else { out.push(c) }
    }
    out
}

fn push_escape(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if u32::from(c) < 0x100 => {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        }
        c => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
    }
}

/// True for control characters, C1 included, for separators of lines, and for marks that change the direction of text.
fn is_control(c: char) -> bool {
    c.is_control() || logs::clean::is_direction_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_remains() {
        assert_eq!(line("a\x1b]0;evil\x07b\n\t\u{9b}31m"), "a\\x1b]0;evil\\x07b\\n\\t\\x9b31m");
        assert_eq!(line("abc\u{202e}cba"), "abc\\u{202e}cba");
        assert_eq!(cell("abc\u{202e}cba".to_owned()), "abc\\u{202e}cba");
        assert_eq!(cell("grün".to_owned()), "grün");
        assert_eq!(line("grün 日本"), "grün 日本");
        assert_eq!(json("{\"a\":\"\u{9b}31m\u{202e}\"}"), "{\"a\":\"\\u009b31m\\u202e\"}");
        assert_eq!(lines("one\n\ttwo\r\x1b[2J"), "one\n\ttwo\\r\\x1b[2J");
    }
}
