//! Command lines for tmux, and the only place that quotes. Free text never gets here: only ids, numbers,
//! validated names, formats of this crate, and paths.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::TmuxError;

/// Command line of one call: commands that the server runs in one queue pass. An error ends the line, and
/// the commands behind it are not run.
#[derive(Debug, Default)]
pub(crate) struct CommandLine(Vec<OsString>);

impl CommandLine {
    /// Appends a command.
    pub(crate) fn then<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        if !self.0.is_empty() {
            self.0.push(";".into());
        }
        self.0.extend(words.into_iter().map(|word| argument(word.as_ref())));
        self
    }

    pub(crate) fn words(&self) -> &[OsString] {
        &self.0
    }
}

/// Escapes a word of a command line: tmux takes a `;` at the end of a word for a separator.
fn argument(word: &OsStr) -> OsString {
    match word.as_bytes().strip_suffix(b";") {
        Some(rest) => OsString::from_vec([rest, b"\\;"].concat()),
        None => word.to_owned(),
    }
}

/// Joins commands into one text, for the bodies of `if-shell` and for a control connection.
pub(crate) fn script<'a, W: AsRef<OsStr> + 'a>(commands: impl IntoIterator<Item = &'a [W]>) -> String {
    let quoted = |words: &[W]| words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ");
    commands.into_iter().map(quoted).collect::<Vec<_>>().join(" ; ")
}

/// Quotes one word inside a [`script`]: tmux expands a `~` at the beginning of a word even within quotes. Bytes that
/// are not UTF-8 become octal escapes.
fn quote(word: &OsStr) -> String {
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for chunk in word.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' | '$' | '~' => quoted.extend(['\\', c]),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                _ => quoted.push(c),
            }
        }
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\{byte:03o}"));
        }
    }
    quoted.push('"');
    quoted
}

/// Limit of standard error, in bytes; tmux's messages are one line.
pub(crate) const STDERR_CAP: usize = 64 << 10;

/// Output of a command line that ran to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) ok: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Reply {
    /// Returns the error that explains a missing end mark.
    pub(crate) fn error(&self) -> TmuxError {
        TmuxError::from_message(&String::from_utf8_lossy(&self.stderr))
    }
}

/// Quotes a shell command for `pipe-pane`, which passes it through `strftime`, then expands formats, then
/// runs `sh`. The character after a `#` is kept apart from it, because `##[` and `##{` are not read as `#[`
/// and `#{`.
pub(crate) fn shell_for_format(words: &[&OsStr]) -> OsString {
    let mut shell = Vec::new();
    for (i, word) in words.iter().enumerate() {
        shell.extend_from_slice(if i == 0 { b"'" } else { b" '" });
        for &byte in word.as_bytes() {
            match byte {
                b'\'' => shell.extend_from_slice(b"'\\''"),
                b'#' => shell.extend_from_slice(b"##''"),
                b'%' => shell.extend_from_slice(b"%%"),
                _ => shell.push(byte),
            }
        }
        shell.push(b'\'');
    }
    OsString::from_vec(shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_never_made_of_a_word() {
        let line = CommandLine::default().then(["a;", ";", "b\\;", "c"]).then(["d"]);
        let words: Vec<_> = line.words().iter().map(|w| w.to_str().unwrap()).collect();
        assert_eq!(words, ["a\\;", "\\;", "b\\\\;", "c", ";", "d"]);
    }

    #[test]
    fn quoting_is_reversible() {
        let quote = |word: &[u8]| super::quote(OsStr::from_bytes(word));
        assert_eq!(quote(b"a\xe9\xff9"), "\"a\\351\\3779\"");
        assert_eq!(quote(b"$3 \"x\" \\ ;\n"), "\"\\$3 \\\"x\\\" \\\\ ;\\n\"");
        assert_eq!(script([&["a", "b c"][..], &["d"]]), "\"a\" \"b c\" ; \"d\"");
    }

    #[test]
    fn a_shell_word_survives_strftime_and_formats() {
        let shell = shell_for_format(&[OsStr::new("/a b"), OsStr::new("/#[x]%d'")]);
        assert_eq!(shell, OsStr::new("'/a b' '/##''[x]%%d'\\'''"));
    }
}
