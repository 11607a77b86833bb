//! Words of a shell's command line.

use std::borrow::Cow;

/// Quotes a text as one word of a POSIX shell.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}
