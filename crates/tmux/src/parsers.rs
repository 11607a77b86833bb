//! The parsers of what tmux says, for tests with arbitrary bytes.

use std::collections::BTreeMap;

use crate::error::TmuxError;
use crate::query::{Query, Scope};
use crate::version::Version;
use crate::{format, imsg, live, pane_snapshot};

/// Parses the output of a control connection, with and without a pending answer.
///
/// # Panics
/// Pieces of the output mean something else than the whole.
pub fn control(bytes: &[u8]) {
    for mark in ["", "BEGIN"] {
        assert!(live::pieces_agree(bytes, 3, mark), "in pieces it is read as something else");
    }
}

/// Parses the answers to reads: bytes as they are, and as the rows between the marks of a true answer.
pub fn answers(bytes: &[u8]) {
    for scope in [Scope::Alive, Scope::Sessions, Scope::All] {
        let query = Query::new(scope, true);
        let framed = [
            format!("{}10 99\n", query.begins()).as_bytes(),
            bytes,
            format!("\n{}10 99\n", query.ends()).as_bytes(),
        ]
        .concat();
        drop(query.read(bytes, TmuxError::NoServer));
        drop(query.read(&framed, TmuxError::NoServer));
    }
    drop(format::sessions(bytes));
    drop(format::panes(bytes, None, &BTreeMap::new()));
    drop(pane_snapshot::read(bytes, "END"));
    let text = String::from_utf8_lossy(bytes);
    let _version = Version::parse(&text);
}

/// Parses the frames of tmux's own protocol.
pub fn frames(bytes: &[u8]) {
    for form in [imsg::Form::Narrow, imsg::Form::Wide] {
        let mut at = 0;
        while let Ok(Some((_, length))) = imsg::decode(form, &bytes[at..]) {
            at += length;
        }
    }
}
