//! The volatile half of what is known of agents. Gone when `poold` ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::activity::Ask;
use protocol::{SessionId, Tag, Timestamp};

use crate::activity::Marks;

/// Hook reports that are remembered, so that one that comes twice is taken in once.
const REPORTS_MAX: usize = 4096;

/// Hook reports, pending questions, terminal marks.
#[derive(Debug, Default)]
pub struct Agents {
    reports: VecDeque<u64>,
    queued_asks: BTreeMap<SessionId, Vec<Ask>>,
    marks: BTreeMap<Tag, Marks>,
    looked_at: BTreeMap<Tag, Timestamp>,
    turns: BTreeMap<SessionId, String>,
    go_on_after: BTreeMap<SessionId, Timestamp>,
}

impl Agents {
    /// Returns true the first time that a report of this id comes.
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
    pub fn marks(&self, tag: Tag) -> Option<&Marks> {
        self.marks.get(&tag)
    }

    /// Notes the marks in the output of an incarnation. Returns true if they are news.
    pub fn note_marks(&mut self, tag: Tag, marks: &Marks) -> bool {
        let before = self.marks.get(&tag);
        if before.map_or(*marks == Marks::default(), |before| before == marks) {
            return false;
        }
        self.marks.insert(tag, marks.clone());
        true
    }

    /// Start of the last look at an incarnation that told something.
    #[must_use]
    pub fn looked_at(&self, tag: Tag) -> Option<Timestamp> {
        self.looked_at.get(&tag).copied()
    }

    /// Notes a look at an incarnation. Returns the start of the look before.
    pub fn note_look(&mut self, tag: Tag, began: Timestamp) -> Option<Timestamp> {
        self.looked_at.insert(tag, began)
    }

    /// The agent's own name for the turn in which it works the present prompt, where it said so.
    #[must_use]
    pub fn turn(&self, session: SessionId) -> Option<&str> {
        self.turns.get(&session).map(String::as_str)
    }

    /// A session's agent took a prompt, in the turn of this name.
    pub fn begin_turn(&mut self, session: SessionId, turn: Option<String>) {
        self.turns.remove(&session);
        self.turns.extend(turn.map(|turn| (session, turn)));
    }

    /// Notes the end of a usage limit after which an agent is told to go on. Returns true if it is news.
    pub fn go_on_after(&mut self, session: SessionId, until: Timestamp) -> bool {
        self.go_on_after.insert(session, until) != Some(until)
    }

    /// Forgets sessions and incarnations that are no more.
    pub fn retain(&mut self, sessions: &BTreeSet<SessionId>, running: &BTreeSet<Tag>) {
        self.turns.retain(|session, _| sessions.contains(session));
        self.go_on_after.retain(|session, _| sessions.contains(session));
        self.queued_asks.retain(|session, _| sessions.contains(session));
        self.marks.retain(|tag, _| running.contains(tag));
        self.looked_at.retain(|tag, _| running.contains(tag));
    }
}
