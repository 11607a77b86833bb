//! Claims of workers: one holder of a message at a time, with tokens that grow.

use protocol::{MessageId, ProcId, Tag, Token};

use super::Judge;

impl Judge {
    /// Notes that a worker has got a claim. `is_alive` tells whether a process lives.
    pub(crate) fn claimed(
        &self,
        (id, token): (MessageId, Token),
        worker: ProcId,
        is_alive: impl Fn(ProcId) -> bool,
    ) {
        let mut state = self.state();
        let before = state.claims.insert(id, (token, worker));
        let newest = state.tokens.insert(id, token);
        state.tokens_since.insert(id, token);
        drop(state);
        if let Some((_, other)) =
            before.filter(|(old, other)| *old != token && *other != worker && is_alive(*other))
        {
            self.violated(format!(
                "L4: message {id} is claimed by {worker} while {other} holds it and lives"
            ));
        }
        if newest.is_some_and(|newest| newest > token) {
            self.violated(format!("Q1: the tokens of message {id} went back"));
        }
    }

    /// True for the tag of a claim that was made before the database was put back.
    pub(crate) fn is_old_claim(&self, tag: Tag) -> bool {
        self.state().old_claims.contains(&tag)
    }

    /// Notes that a person takes a message back: its worker holds nothing any more.
    pub(crate) fn taken_back(&self, id: MessageId) {
        self.state().claims.remove(&id);
    }

    /// Notes that a worker is about to report a claim.
    pub(crate) fn reported(&self, id: MessageId, token: Token) {
        let mut state = self.state();
        if state.claims.get(&id).is_some_and(|(held, _)| *held == token) {
            state.claims.remove(&id);
        }
    }

    /// Notes that a worker's report that it processed a message under this claim was acknowledged.
    pub(crate) fn processed(&self, id: MessageId, token: Token) {
        let mut state = self.state();
        state.processed.insert(id);
        // After the database was restored, its newest claim may be an older one than the newest that was granted.
        let newest = state.tokens_since.get(&id).copied();
        drop(state);
        if newest.is_some_and(|newest| newest > token) {
            self.violated(format!("Q1: a report on message {id} under an old claim was accepted"));
        }
    }

    /// True if a worker's report that it processed the message was acknowledged.
    pub(crate) fn is_processed(&self, id: MessageId) -> bool {
        self.state().processed.contains(&id)
    }
}
