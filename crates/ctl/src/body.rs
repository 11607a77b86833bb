//! The body of a message, given as words of the command line, on standard input or in a file.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use protocol::OsBytes;
use protocol::message::BODY_MAX;

use crate::Error;

/// Refuses a body that is too long to be sent.
pub(crate) fn checked(body: OsBytes) -> Result<OsBytes, Error> {
    if body.0.len() > BODY_MAX {
        return Err(Error::usage(format!(
            "a message has at most {BODY_MAX} bytes: put long text into a file and send its path"
        )));
    }
    Ok(body)
}

/// Joins words of a command line into one text.
pub(crate) fn joined(words: &[OsString]) -> OsBytes {
    OsBytes(words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&b' '))
}

/// Reads the text on standard input.
pub(crate) fn read_stdin() -> Result<OsBytes, Error> {
    read(io::stdin(), Path::new("standard input"))
}

/// Reads the text of a file or pipe. Its final newline is not part of it, as in `$(…)`.
pub(crate) fn read(from: impl Read, name: &Path) -> Result<OsBytes, Error> {
    let mut bytes = Vec::new();
    // Two bytes more than allowed distinguish the longest text and its newline from one that is too long.
    let most = u64::try_from(BODY_MAX).unwrap_or(u64::MAX).saturating_add(2);
    from.take(most).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    Ok(OsBytes(bytes))
}

/// The error for a file that cannot be read.
pub(crate) fn unreadable(name: &Path, error: &io::Error) -> Error {
    Error::usage(format!("{}: {error}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_newline_is_not_sent() {
        let text = |bytes: &[u8]| read(bytes, Path::new("x")).unwrap().0;
        assert_eq!(text(b"a\nb\n"), b"a\nb");
        assert_eq!(text(b"a\n\n"), b"a\n");
        assert_eq!(text(b""), b"");
    }

    #[test]
    fn a_text_too_long_is_refused_before_it_is_sent() {
        let text =
            |length: usize| checked(read(io::repeat(b'x').take(length as u64), Path::new("x")).unwrap());
        assert!(text(BODY_MAX).is_ok());
        assert!(text(BODY_MAX + 1).is_err() && text(10 * BODY_MAX).is_err());
    }
}
