//! A database that is put back from a backup: what was promised since then is forgotten, but no number is given out
//! again.

use protocol::Tag;
use tokio::time::Instant;

use super::{Judge, State};

/// The promises made until some time.
pub(crate) struct Promises(State);

impl Judge {
    /// Returns what is promised now.
    pub(crate) fn promises(&self) -> Promises {
        Promises(self.state().clone())
    }

    /// Notes that the database was replaced by a backup. The two arguments are what was promised when the backup was
    /// begun, and when it was complete.
    pub(crate) fn went_back(&self, (Promises(before), Promises(after)): (Promises, Promises)) {
        let mut state = self.state();
        // A prompt that was typed or cut short while the backup was made may or may not be so in the backup.
        let typed =
            |state: &State, body: &str| state.prompts.get(body).map(|prompt| (prompt.pasted, prompt.entered));
        let is_open = |body: &&String| {
            typed(&before, body) != typed(&after, body)
                || before.cut_short.get(*body) != after.cut_short.get(*body)
        };
        after.prompts.keys().filter(is_open).for_each(|body| state.retried.grant(body.clone()));
        state.prompts = after.prompts;
        state.acknowledged = before.acknowledged;
        state.created = before.created;
        state.gone = before.gone;
        state.processed = before.processed;
        state.cut_short = before.cut_short;
        // A request that had no answer yet is repeated, and carried out again.
        state.inputs.clear();
        state.held.clear();
        state.withdrawn.clear();
        state.succeeded.clear();
        state.told_final = before.told_final;
        state.told_gone.clear();
        state.claims.clear();
        state.kept.clear();
        state.handled.clear();
        state.tokens_since.clear();
        state.old_claims = state.tokens.values().map(|token| Tag::for_claim(*token)).collect();
        let now = Instant::now();
        state.locks.values_mut().for_each(|(_, ends)| *ends = now.min(*ends));
        state.forgotten = state.begun.clone();
        state.timeline += 1;
    }

    /// Returns the number of times that the database was put back.
    pub(crate) fn timeline(&self) -> u64 {
        self.state().timeline
    }

    /// True for an incarnation of before the database was put back.
    pub(crate) fn is_forgotten(&self, tag: Tag) -> bool {
        self.state().forgotten.contains(&tag)
    }
}
