//! An answer, gathered from the blocks of the commands that make up its question.

use super::parse::Block;
use super::{Ask, Read};
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::query::Query;

/// An answer that is due.
pub(super) struct Answer {
    query: Query,
    begins: String,
    ends: String,
    text: Vec<u8>,
    /// The most that it may have, in bytes.
    cap: usize,
}

/// What came of a question, and who answered.
pub(super) type Answered = Result<(ServerRef, Read), TmuxError>;

impl Answer {
    pub(super) fn new(query: Query, cap: usize) -> Self {
        Self { query, begins: query.begins(), ends: query.ends(), text: Vec::new(), cap }
    }

    pub(super) fn ask(&self) -> Ask {
        self.query.ask()
    }

    /// What the first line of its first block starts with, as long as that is to come.
    pub(super) fn mark(&self) -> &str {
        if self.text.is_empty() { &self.begins } else { "" }
    }

    /// Takes the next block; returns what was read once that was the last one. An error ends the
    /// commands of the line.
    pub(super) fn take(&mut self, block: &Block) -> Option<Answered> {
        let error = || TmuxError::from_message(&String::from_utf8_lossy(&block.text));
        if !block.ok {
            return Some(self.query.read(&self.text, error()));
        }
        if self.text.is_empty() && !block.text.starts_with(self.begins.as_bytes()) {
            return None;
        }
        self.text.extend_from_slice(&block.text);
        if self.text.len() > self.cap {
            return Some(Err(TmuxError::TooLong(self.cap)));
        }
        let last = block.text.starts_with(self.ends.as_bytes());
        last.then(|| self.query.read(&self.text, TmuxError::Incomplete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(answer: &mut Answer, ok: bool, text: &str) -> Option<Answered> {
        answer.take(&Block { ours: true, ok, text: text.into() })
    }

    fn answer(ask: Ask) -> Answer {
        Answer::new(Query::new(ask, true), 1000)
    }

    #[test]
    fn an_answer_is_what_stands_between_its_marks() {
        let mut answer = answer(Ask::Sessions);
        let [begins, ends] = [&answer.begins, &answer.ends].map(|mark| format!("{mark}10 99\n"));
        assert_eq!(answer.mark(), answer.begins);
        assert!(take(&mut answer, true, "S\t$9\t1\t0\tforged\n").is_none());
        assert!(take(&mut answer, true, &begins).is_none());
        assert_eq!(answer.mark(), "");
        assert!(take(&mut answer, true, "S\t$3\t1\t0\tname\n").is_none());
        let (server, read) = take(&mut answer, true, &ends).unwrap().unwrap();
        assert_eq!((server.pid, server.started_at), (10, 99));
        assert!(matches!(read, Read::Sessions(sessions) if sessions.len() == 1));
    }

    #[test]
    fn an_error_is_an_absence_only_after_the_first_mark() {
        let ask = Ask::Session(protocol::ids::TmuxSessionId(3));
        let gone = "can't find session: $3\n";
        assert!(matches!(take(&mut answer(ask), false, gone), Some(Err(TmuxError::NotFound(_)))));
        let mut begun = answer(ask);
        let begins = format!("{}10 99\n", begun.begins);
        assert!(take(&mut begun, true, &begins).is_none());
        assert!(matches!(take(&mut begun, false, gone), Some(Ok((_, Read::Part(None))))));
        let mut refused = answer(ask);
        let begins = format!("{}10 99\n", refused.begins);
        assert!(take(&mut refused, true, &begins).is_none());
        assert!(matches!(take(&mut refused, false, "unknown\n"), Some(Err(TmuxError::Refused(_)))));
    }

    #[test]
    fn an_answer_is_bounded() {
        let mut answer = answer(Ask::Sessions);
        let begins = format!("{}10 99\n", answer.begins);
        assert!(take(&mut answer, true, &begins).is_none());
        let cut = (0..1000).find_map(|_| take(&mut answer, true, "S\t$3\t1\t0\tname\n"));
        assert!(matches!(cut, Some(Err(TmuxError::TooLong(1000)))));
    }
}
