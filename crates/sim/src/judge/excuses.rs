//! Excuses: losses and repetitions that somebody asked for. One whose every request was refused is none.

use protocol::{MessageId, SessionId};

use super::Judge;
use super::records::Asked;

impl Judge {
    /// Notes that somebody asks for something, or has reason to.
    pub(crate) fn asked(&self, what: Asked) {
        let mut state = self.state();
        match what {
            Asked::Removal(session) => state.removed.grant(session),
            Asked::Retry(id) => {
                state.kept.remove(&id);
                if let Some(body) = state.numbered.get(&id).cloned() {
                    state.retried.grant(body);
                }
            }
            Asked::Purge(id) => state.purged.grant(id),
            Asked::End(id) => {
                state.kept.remove(&id);
                state.given_up.grant(id);
            }
        }
    }

    /// Notes that a request that was noted by [`Judge::asked`] was refused, each time that it was made.
    pub(crate) fn refused(&self, what: Asked) {
        self.count("excuse:withdrawn");
        let mut state = self.state();
        match what {
            Asked::Removal(session) => state.removed.withdraw(&session),
            Asked::Retry(id) => {
                if let Some(body) = state.numbered.get(&id).cloned() {
                    state.retried.withdraw(&body);
                }
            }
            Asked::Purge(id) => state.purged.withdraw(&id),
            Asked::End(id) => state.given_up.withdraw(&id),
        }
    }

    /// True if somebody asked for the session to be removed.
    pub(crate) fn is_removed(&self, session: SessionId) -> bool {
        self.state().removed.contains(&session)
    }

    /// True if somebody asked for the message to be typed again.
    pub(crate) fn is_retried(&self, body: &str) -> bool {
        self.state().retried.contains(body)
    }

    /// True if somebody asked for the record of the message to be removed.
    pub(crate) fn is_purged(&self, id: MessageId) -> bool {
        self.state().purged.contains(&id)
    }

    /// True if a person gave the message up, or took it back.
    pub(crate) fn is_given_up(&self, id: MessageId) -> bool {
        self.state().given_up.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn what_was_refused_is_excused_no_more_unless_somebody_else_asked_for_it() {
        let (judge, session) = (Judge::new(1, Trace::new(false)), SessionId(7));
        judge.asked(Asked::Removal(session));
        judge.asked(Asked::Removal(session));
        judge.refused(Asked::Removal(session));
        assert!(judge.is_removed(session));
        judge.refused(Asked::Removal(session));
        assert!(!judge.is_removed(session));
    }

    #[test]
    fn a_refused_retry_excuses_no_second_paste() {
        let (judge, id) = (Judge::new(1, Trace::new(false)), MessageId(3));
        judge.acknowledged(id, SessionId(7), "prompt 000001");
        judge.asked(Asked::Retry(id));
        judge.refused(Asked::Retry(id));
        assert!(!judge.is_retried("prompt 000001"));
    }
}
