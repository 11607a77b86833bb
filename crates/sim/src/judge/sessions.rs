//! Sessions: those whose creation was acknowledged exist until somebody asks for their removal.

use std::collections::BTreeSet;

use protocol::{MessageId, SessionId, Tag};

use super::Judge;
use crate::world::machine::Kind;

impl Judge {
    /// Notes that the creation of a session was acknowledged.
    pub(crate) fn created(&self, session: SessionId, name: &str) {
        let mut state = self.state();
        state.created.insert(session, name.to_owned());
        let is_new = state.numbered_sessions.insert(session);
        drop(state);
        if !is_new {
            self.violated(format!("two sessions have the id {session}"));
        }
    }

    /// Notes that a subscriber is told that an incarnation runs.
    pub(crate) fn told_live(&self, tag: Tag) {
        self.state().told_live.insert(tag);
    }

    /// True if a process of this kind has to be gone once its incarnation is said to be over. The init of a job that
    /// was never taken ends by itself, a program whose adoption failed stays its user's, and a handler may be left.
    pub(crate) fn goes_with_run(&self, kind: Kind, tag: Tag) -> bool {
        let state = self.state();
        match kind {
            Kind::Agent | Kind::Host => true,
            Kind::Init => state.started.contains_key(&tag),
            Kind::Foreign => state.told_live.contains(&tag),
            Kind::Daemon | Kind::TmuxServer | Kind::Client | Kind::Worker | Kind::Handler => false,
        }
    }

    /// Notes that a subscriber is told the state: it has missed the ends of sessions and messages, if there were any.
    pub(crate) fn missed_events(&self) {
        let mut state = self.state();
        state.has_missed |= !state.numbered_sessions.is_empty() || !state.numbered.is_empty();
    }

    /// True if a subscriber may not have been told of a session's end.
    pub(crate) fn has_missed_events(&self) -> bool {
        self.state().has_missed
    }

    /// Notes that the removal of a session was acknowledged.
    pub(crate) fn gone(&self, session: SessionId) {
        self.state().gone.insert(session);
    }

    /// Notes that an acknowledged message starts its session.
    pub(crate) fn wakes(&self, id: MessageId) {
        self.state().waking.insert(id);
    }

    /// True for a message that starts its session, in a database that was never put back: a copy starts nothing.
    pub(crate) fn is_waking(&self, id: MessageId) -> bool {
        let state = self.state();
        state.timeline == 0 && state.waking.contains(&id)
    }

    /// Compares the sessions that exist with the acknowledged creations and removals.
    pub(crate) fn compare_sessions(&self, existing: &BTreeSet<SessionId>) -> Result<(), String> {
        let state = self.state();
        if let Some(id) = state.gone.iter().find(|id| existing.contains(id)) {
            return Err(format!("D1: {id} is there, and its removal was acknowledged"));
        }
        let lost = state.created.iter().find(|(id, _)| !existing.contains(id) && !state.removed.contains(id));
        match lost {
            Some((id, name)) => Err(format!("D1: {name} ({id}) was acknowledged, and is lost")),
            None => Ok(()),
        }
    }
}
