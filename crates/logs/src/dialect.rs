//! Control sequences that tmux knows and the emulator does not, or does not bound, in the words of the emulator.

use std::borrow::Cow;

const ESC: u8 = 0x1b;

/// Returns the output for an emulator of a terminal with this number of columns. Sequences are whole in it.
pub(crate) fn for_emulator(bytes: &[u8], columns: u16) -> Cow<'_, [u8]> {
    let mut changed = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == ESC).map(|next| at + next) {
        let (length, replacement) = sequence(&bytes[next..], columns);
        at = next + length;
        if let Some(replacement) = replacement {
            changed.extend_from_slice(&bytes[from..next]);
            changed.extend(replacement);
            from = at;
        }
    }
    if changed.is_empty() {
        return Cow::Borrowed(bytes);
    }
    changed.extend_from_slice(&bytes[from..]);
    Cow::Owned(changed)
}

/// Returns the length of what begins a sequence, and what takes its place.
fn sequence(bytes: &[u8], columns: u16) -> (usize, Option<Vec<u8>>) {
    match bytes.get(1) {
        // Next line, and index.
        Some(b'E') => (2, Some(b"\r\n".to_vec())),
        Some(b'D') => (2, Some(b"\n".to_vec())),
        Some(b'[') => {
            let parameters = bytes[2..].iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
            let (end, length) = (bytes.get(2 + parameters), 3 + parameters);
            let parameters = std::str::from_utf8(&bytes[2..2 + parameters]).unwrap_or_default();
            let moved = |by: char| format!("\x1b[{parameters}{by}").into_bytes();
            let replacement = match end {
                Some(b'b') => Some(repeated(parameters, columns)),
                Some(b'a') => Some(moved('C')),
                Some(b'e') => Some(moved('B')),
                Some(switch @ (b'h' | b'l')) if parameters == "?1047" => {
                    Some(format!("\x1b[?47{}", char::from(*switch)).into_bytes())
                }
                _ => None,
            };
            (length.min(bytes.len()), replacement)
        }
        _ => (1, None),
    }
}

/// Builds the repetition of the last character, at most over a whole row.
fn repeated(count: &str, columns: u16) -> Vec<u8> {
    let count = if count.is_empty() { Ok(1) } else { count.parse::<u64>() };
    format!("\x1b[{}b", count.unwrap_or(u64::MAX).min(columns.into())).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_emulator_lacks_is_changed() {
        let of = |text: &str| String::from_utf8(for_emulator(text.as_bytes(), 80).into_owned()).unwrap();
        assert_eq!(of("a\x1bEb\x1bDc"), "a\r\nb\nc");
        assert_eq!(of("x\x1b[65535b\x1b[99999999999999999999999b\x1b[b|"), "x\x1b[80b\x1b[80b\x1b[1b|");
        assert_eq!(of("\x1b[3a\x1b[2e\x1b[?1047hx\x1b[?1047l"), "\x1b[3C\x1b[2B\x1b[?47hx\x1b[?47l");
        for same in
            ["", "plain", "\x1b[31mred\x1b[0m\x1b[?1049h", "\x1b[", "\x1b", "\x1b[12", "\x1b]0;bE\x07"]
        {
            assert_eq!(of(same), same);
        }
    }
}
