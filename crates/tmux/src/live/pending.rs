//! Assembly of a read's answer from the blocks of its commands.

use super::parse::Block;
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::query::{Query, Reading, Scope};

/// A read whose answer is awaited.
pub(super) struct PendingRead {
    query: Query,
    begins: String,
    ends: String,
    text: Vec<u8>,
    /// Maximum size of the answer, in bytes.
    cap: usize,
}

/// Result of a read, with the server that answered.
pub(super) type ReadResult = Result<(ServerRef, Reading), TmuxError>;

impl PendingRead {
    pub(super) fn new(query: Query, cap: usize) -> Self {
        Self { query, begins: query.begins(), ends: query.ends(), text: Vec::new(), cap }
    }

    pub(super) fn scope(&self) -> Scope {
        self.query.scope()
    }

    /// Expected prefix of the answer's first line; empty once that has arrived.
    pub(super) fn mark(&self) -> &str {
        if self.text.is_empty() { &self.begins } else { "" }
    }

    /// Adds a block, and returns the result if it was the last one. An error ends the commands of the line.
    pub(super) fn take(&mut self, block: &Block) -> Option<ReadResult> {
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

    fn take(answer: &mut PendingRead, ok: bool, text: &str) -> Option<ReadResult> {
        answer.take(&Block { ours: true, ok, text: text.into() })
    }

    fn answer(scope: Scope) -> PendingRead {
        PendingRead::new(Query::new(scope, true), 1000)
    }

    #[test]
    fn an_answer_is_what_stands_between_its_marks() {
        let mut answer = answer(Scope::Sessions);
        let [begins, ends] = [&answer.begins, &answer.ends].map(|mark| format!("{mark}10 99\n"));
        assert_eq!(answer.mark(), answer.begins);
        assert!(take(&mut answer, true, "S\t$9\t1\t0\t-\tforged\n").is_none());
        assert!(take(&mut answer, true, &begins).is_none());
        assert_eq!(answer.mark(), "");
        assert!(take(&mut answer, true, "S\t$3\t1\t0\t-\tname\n").is_none());
        let (server, read) = take(&mut answer, true, &ends).unwrap().unwrap();
        assert_eq!((server.pid, server.started_at), (10, 99));
        assert!(matches!(read, Reading::Sessions(sessions) if sessions.len() == 1));
    }

    #[test]
    fn an_error_is_an_absence_only_after_the_first_mark() {
        let scope = Scope::Session(protocol::ids::TmuxSessionId(3));
        let gone = "can't find session: $3\n";
        assert!(matches!(take(&mut answer(scope), false, gone), Some(Err(TmuxError::NotFound(_)))));
        let mut begun = answer(scope);
        let begins = format!("{}10 99\n", begun.begins);
        assert!(take(&mut begun, true, &begins).is_none());
        assert!(matches!(take(&mut begun, false, gone), Some(Ok((_, Reading::Part(None))))));
        let mut refused = answer(scope);
        let begins = format!("{}10 99\n", refused.begins);
        assert!(take(&mut refused, true, &begins).is_none());
        assert!(matches!(take(&mut refused, false, "unknown\n"), Some(Err(TmuxError::Refused(_)))));
    }

    #[test]
    fn an_answer_is_bounded() {
        let mut answer = answer(Scope::Sessions);
        let begins = format!("{}10 99\n", answer.begins);
        assert!(take(&mut answer, true, &begins).is_none());
        let cut = (0..1000).find_map(|_| take(&mut answer, true, "S\t$3\t1\t0\t-\tname\n"));
        assert!(matches!(cut, Some(Err(TmuxError::TooLong(1000)))));
    }
}
