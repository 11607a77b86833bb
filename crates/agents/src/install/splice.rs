//! Spans of the parts of a JSON text, and edits that leave everything else as it is, byte for byte. The text
//! has to be valid JSON.

use std::ops::Range;

/// A byte range of the text.
pub(super) type Span = Range<usize>;

/// A member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) key: String,
    /// The span of key and value.
    pub(super) all: Span,
    /// The span of the value.
    pub(super) value: Span,
}

/// Returns the members of an object; none if the span is not an object.
pub(super) fn members(text: &str, object: &Span) -> Option<Vec<Member>> {
    let items = items(text, object, b'{')?;
    let member = |all: Span| {
        let end = value_end(text, all.start);
        let key = serde_json::from_str(&text[all.start..end]).unwrap_or_default();
        let colon = skip_space(text, end);
        Member { key, value: skip_space(text, colon + 1)..all.end, all }
    };
    Some(items.into_iter().map(member).collect())
}

/// Returns the elements of a list; none if the span is not a list.
pub(super) fn elements(text: &str, list: &Span) -> Option<Vec<Span>> {
    items(text, list, b'[')
}

/// Returns the span of the outermost value.
pub(super) fn root(text: &str) -> Span {
    let start = skip_space(text, 0);
    start..text.trim_end().len().max(start)
}

/// Replacements of spans that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Edits(Vec<(Span, String)>);

impl Edits {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends an item to an object or list, which has these `items`. `indent` is one level of indentation
    /// and the container's depth.
    pub(super) fn append(&mut self, container: &Span, items: &[Span], item: &str, indent: (&str, usize)) {
        let (unit, depth) = indent;
        let inner = format!("\n{}{item}", unit.repeat(depth + 1));
        match items.last() {
            Some(last) => self.0.push((last.end..last.end, format!(",{inner}"))),
            None => {
                let inside = container.start + 1..container.end - 1;
                self.0.push((inside, format!("{inner}\n{}", unit.repeat(depth))));
            }
        }
    }

    /// Removes some of the items of an object or list, with their commas.
    pub(super) fn remove(&mut self, container: &Span, items: &[Span], removed: &[bool]) {
        let Some(first_kept) = removed.iter().position(|removed| !removed) else {
            self.0.push((container.start + 1..container.end - 1, String::new()));
            return;
        };
        if first_kept > 0 {
            self.0.push((items[0].start..items[first_kept].start, String::new()));
        }
        for at in first_kept + 1..items.len() {
            if removed[at] {
                self.0.push((items[at - 1].end..items[at].end, String::new()));
            }
        }
    }

    /// Returns the edited text.
    pub(super) fn apply(mut self, text: &str) -> String {
        self.0.sort_by_key(|(span, _)| span.start);
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for (span, with) in self.0 {
            out.push_str(&text[at..span.start]);
            out.push_str(&with);
            at = span.end;
        }
        out.push_str(&text[at..]);
        out
    }
}

fn items(text: &str, container: &Span, open: u8) -> Option<Vec<Span>> {
    let bytes = text.as_bytes();
    if bytes.get(container.start) != Some(&open) {
        return None;
    }
    let mut items = Vec::new();
    let mut at = skip_space(text, container.start + 1);
    while at < container.end - 1 {
        let start = at;
        let mut end = at;
        // A member consists of a key, a colon and a value; an element of a value only.
        while at < container.end - 1 && bytes[at] != b',' {
            end = value_end(text, at);
            at = skip_space(text, end);
        }
        items.push(start..end);
        at = skip_space(text, at + 1);
    }
    Some(items)
}

/// Returns the end of the value or punctuation that begins at `start`.
fn value_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start;
    let mut depth = 0_usize;
    while let Some(&byte) = bytes.get(at) {
        at = match byte {
            b'"' => string_end(bytes, at),
            _ => at + 1,
        };
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let continues = bytes.get(at).is_some_and(|next| is_literal(*next));
        if depth == 0 && !(is_literal(byte) && continues) {
            break;
        }
    }
    at
}

/// True if the byte may be part of a number or of `true`, `false` or `null`.
fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn skip_space(text: &str, start: usize) -> usize {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    start + text.as_bytes()[start.min(text.len())..].iter().take_while(|byte| space(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_whatever_is_in_them() {
        let text = r#" { "a" : [1, {"b":"]}\"" }] , "c\n":-1.5e3,"":{}, "d" :"x, y" ,"e":null} "#;
        let object = root(text);
        let found = members(text, &object).unwrap();
        let shown: Vec<(&str, &str)> =
            found.iter().map(|m| (m.key.as_str(), &text[m.value.clone()])).collect();
        assert_eq!(
            shown,
            [("a", r#"[1, {"b":"]}\"" }]"#), ("c\n", "-1.5e3"), ("", "{}"), ("d", "\"x, y\""), ("e", "null")]
        );
        let list = elements(text, &found[0].value).unwrap();
        assert_eq!(list.iter().map(|at| &text[at.clone()]).collect::<Vec<_>>(), ["1", r#"{"b":"]}\"" }"#]);
        assert_eq!(elements(text, &object), None);
        assert_eq!(members(text, &found[0].value), None);
        assert_eq!(members("{ }", &(0..3)), Some(vec![]));
        assert_eq!(elements("[\n]", &(0..3)), Some(vec![]));
    }

    #[test]
    fn what_is_taken_away_takes_its_comma_with_it() {
        let text = "[ a , b,c ,  d ]";
        let list = 0..text.len();
        let items = elements(text, &list).unwrap();
        let without = |removed: [bool; 4]| {
            let mut edits = Edits::default();
            edits.remove(&list, &items, &removed);
            edits.apply(text)
        };
        assert_eq!(without([false, false, false, true]), "[ a , b,c ]");
        assert_eq!(without([true, false, false, false]), "[ b,c ,  d ]");
        assert_eq!(without([true, false, true, true]), "[ b ]");
        assert_eq!(without([false, true, true, false]), "[ a ,  d ]");
        assert_eq!(without([true; 4]), "[]");
    }

    #[test]
    fn what_is_added_stands_on_its_own_line() {
        let add = |text: &str| {
            let list = root(text);
            let mut edits = Edits::default();
            edits.append(&list, &elements(text, &list).unwrap(), "x", ("  ", 1));
            edits.apply(text)
        };
        assert_eq!(add("[]"), "[\n    x\n  ]");
        assert_eq!(add("[1\n  ]"), "[1,\n    x\n  ]");
    }
}
