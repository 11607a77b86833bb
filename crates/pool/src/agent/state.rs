//! The volatile facts about agents, lost when `poold` ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::activity::Ask;
use protocol::{SessionId, Tag, Timestamp};

use crate::agent::screen::TerminalMarks;

/// Number of hook reports that are remembered, so that a repeated one is handled once.
const REPORTS_MAX: usize = 4096;

/// Hook reports, queued questions, terminal marks.
#[derive(Debug, Default)]
pub struct Agents {
    reports: VecDeque<u64>,
    queued_asks: BTreeMap<SessionId, Vec<Ask>>,
    marks: BTreeMap<Tag, TerminalMarks>,
    observed_at: BTreeMap<Tag, Timestamp>,
    turns: BTreeMap<SessionId, String>,
    continue_after: BTreeMap<SessionId, Timestamp>,
}

impl Agents {
    /// Returns true the first time for a report of this id.
    pub fn is_new_report(&mut self, id: u64) -> bool {
        if self.reports.contains(&id) {
            return false;
        }
        self.reports.truncate(REPORTS_MAX - 1);
        self.reports.push_front(id);
        true
    }

    /// Questions of a session's agent behind the one that is shown, oldest first.
    #[must_use]
    pub fn queued_asks(&self, session: SessionId) -> &[Ask] {
        self.queued_asks.get(&session).map_or(&[], Vec::as_slice)
    }

    /// Sets all open questions of a session's agent, the one that is shown first.
    pub fn set_asks(&mut self, session: SessionId, open: &[Ask]) {
        match open {
            [] | [_] => drop(self.queued_asks.remove(&session)),
            [_, queued @ ..] => drop(self.queued_asks.insert(session, queued.to_vec())),
        }
    }

    /// The last marks (OSC 133, bell) in the output of an incarnation.
    #[must_use]
    pub fn marks(&self, tag: Tag) -> Option<&TerminalMarks> {
        self.marks.get(&tag)
    }

    /// Stores the marks in the output of an incarnation. Returns true if they are news.
    pub fn note_marks(&mut self, tag: Tag, marks: &TerminalMarks) -> bool {
        let before = self.marks.get(&tag);
        if before.map_or(*marks == TerminalMarks::default(), |before| before == marks) {
            return false;
        }
        self.marks.insert(tag, marks.clone());
        true
    }

    /// Beginning of the last observation of an incarnation that told something.
    #[must_use]
    pub fn observed_at(&self, tag: Tag) -> Option<Timestamp> {
        self.observed_at.get(&tag).copied()
    }

    /// Stores the beginning of an observation of an incarnation. Returns that of the one before.
    pub fn note_observation(&mut self, tag: Tag, began: Timestamp) -> Option<Timestamp> {
        self.observed_at.insert(tag, began)
    }

    /// The agent's own name for the turn in which it works its present prompt, if known.
    #[must_use]
    pub fn turn(&self, session: SessionId) -> Option<&str> {
        self.turns.get(&session).map(String::as_str)
    }

    /// Stores that a session's agent accepted a prompt in the turn of this name.
    pub fn begin_turn(&mut self, session: SessionId, turn: Option<String>) {
        self.turns.remove(&session);
        self.turns.extend(turn.map(|turn| (session, turn)));
    }

    /// Stores the end of a usage limit after which the agent is told to continue. Returns true if it is news.
    pub fn continue_after(&mut self, session: SessionId, until: Timestamp) -> bool {
        self.continue_after.insert(session, until) != Some(until)
    }

    /// Forgets all other sessions and incarnations.
    pub fn retain(&mut self, sessions: &BTreeSet<SessionId>, running: &BTreeSet<Tag>) {
        self.turns.retain(|session, _| sessions.contains(session));
        self.continue_after.retain(|session, _| sessions.contains(session));
        self.queued_asks.retain(|session, _| sessions.contains(session));
        self.marks.retain(|tag, _| running.contains(tag));
        self.observed_at.retain(|tag, _| running.contains(tag));
    }
}
