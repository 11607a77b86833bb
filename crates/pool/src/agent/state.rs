//! The volatile facts about agents, lost when `poold` ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::hook::Hook;
use protocol::{Activity, Ask, MessageId, SessionId, Tag, Timestamp};

use crate::agent::artefacts::Artefacts;
use crate::agent::screen::TerminalMarks;
use crate::clock::Moment;

/// Number of hook reports that are remembered, so that a repeated one is handled once.
const REPORTS_MAX: usize = 4096;

/// Returns what identifies one occurrence of a question: the same dialog may be shown again later.
fn occurrence(shown: &Activity) -> Option<(u64, Timestamp)> {
    shown.ask.as_ref().map(|ask| (ask.id, shown.since))
}

/// Hook reports, questions, terminal marks, plans.
#[derive(Debug, Default)]
pub struct Agents {
    reports: VecDeque<u64>,
    queued_asks: BTreeMap<SessionId, Vec<Ask>>,
    asked_at: BTreeMap<SessionId, BTreeMap<u64, Moment>>,
    marks: BTreeMap<Tag, TerminalMarks>,
    observed_at: BTreeMap<Tag, Timestamp>,
    output_at: BTreeMap<SessionId, Timestamp>,
    hidden_logs: BTreeSet<Tag>,
    under_bells: BTreeMap<Tag, Activity>,
    bells_answered: BTreeMap<Tag, Timestamp>,
    dismissed: BTreeMap<SessionId, (u64, Timestamp)>,
    artefacts: BTreeMap<SessionId, Artefacts>,
    turns: BTreeMap<SessionId, String>,
    /// Sessions for which the agent's record told the end of the turn, and no hook has yet.
    ended_by_record: BTreeSet<SessionId>,
    /// The end of the usage limit after which each agent is told to continue, and the message that tells it.
    continued: BTreeMap<SessionId, (Timestamp, Option<MessageId>)>,
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
    pub fn queued_asks(&self, session: SessionId) -> &[Ask] {
        self.queued_asks.get(&session).map_or(&[], Vec::as_slice)
    }

    /// Stores the moment at which a session's agent asked a question.
    pub fn note_asked(&mut self, session: SessionId, ask: u64, at: Moment) {
        self.asked_at.entry(session).or_default().insert(ask, at);
    }

    /// The moments at which a session's agent asked its open questions, as far as its hooks have told this `poold`.
    pub fn asked_at(&self, session: SessionId) -> Option<&BTreeMap<u64, Moment>> {
        self.asked_at.get(&session)
    }

    /// Sets all open questions of a session's agent, the one that is shown first.
    pub fn set_asks(&mut self, session: SessionId, open: &[Ask]) {
        if let Some(asked_at) = self.asked_at.get_mut(&session) {
            asked_at.retain(|id, _| open.iter().any(|ask| ask.id == *id));
        }
        match open {
            [] | [_] => drop(self.queued_asks.remove(&session)),
            [_, queued @ ..] => drop(self.queued_asks.insert(session, queued.to_vec())),
        }
    }

    /// The last marks (OSC 133, bell) in the output of an incarnation.
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

    /// Beginning of the last observation of an incarnation that had evidence of its activity.
    pub fn observed_at(&self, tag: Tag) -> Option<Timestamp> {
        self.observed_at.get(&tag).copied()
    }

    /// Stores the beginning of an observation of an incarnation. Returns that of the one before.
    pub fn note_observation(&mut self, tag: Tag, began: Timestamp) -> Option<Timestamp> {
        self.observed_at.insert(tag, began)
    }

    /// Time of a session's last output, as last sampled. Kept beyond its end.
    pub fn output_at(&self, session: SessionId) -> Option<Timestamp> {
        self.output_at.get(&session).copied()
    }

    /// Stores the time of a session's last output.
    pub fn note_output(&mut self, session: SessionId, at: Timestamp) {
        self.output_at.insert(session, at);
    }

    /// True if the log of an incarnation is there and cannot be looked at, as last sampled.
    pub fn is_log_hidden(&self, tag: Tag) -> bool {
        self.hidden_logs.contains(&tag)
    }

    /// Stores whether the log of an incarnation is there and cannot be looked at.
    pub fn note_hidden_log(&mut self, tag: Tag, is_hidden: bool) {
        if is_hidden {
            self.hidden_logs.insert(tag);
        } else {
            self.hidden_logs.remove(&tag);
        }
    }

    /// The activity of an incarnation apart from its bell, while the bell asks.
    pub fn under_bell(&self, tag: Tag) -> Option<&Activity> {
        self.under_bells.get(&tag)
    }

    /// Stores the activity of an incarnation apart from its bell; none if no bell asks. Returns true if the
    /// state is news.
    pub fn note_under_bell(&mut self, tag: Tag, activity: Option<Activity>) -> bool {
        let state = activity.as_ref().map(|activity| activity.state);
        let before = match activity {
            Some(activity) => self.under_bells.insert(tag, activity),
            None => self.under_bells.remove(&tag),
        };
        before.map(|before| before.state) != state
    }

    /// Stores that a person was at incarnations (attached, typed) or dismissed their bells: earlier bells ask no
    /// more.
    pub(crate) fn answer_bell(&mut self, tags: impl IntoIterator<Item = Tag>, at: Timestamp) {
        self.bells_answered.extend(tags.into_iter().map(|tag| (tag, at)));
    }

    /// Time up to which the bells of an incarnation are answered.
    pub fn bell_answered_at(&self, tag: Tag) -> Option<Timestamp> {
        self.bells_answered.get(&tag).copied()
    }

    /// Stores that a person dismissed what a session asks at present.
    pub fn dismiss(&mut self, session: SessionId, shown: &Activity) {
        self.dismissed.extend(occurrence(shown).map(|asked| (session, asked)));
    }

    /// True if a person dismissed what a session asks at present. The same question asked again is another
    /// one.
    pub fn is_dismissed(&self, session: SessionId, shown: &Activity) -> bool {
        self.dismissed.get(&session).is_some_and(|asked| occurrence(shown).as_ref() == Some(asked))
    }

    /// The plan and the files of a session's agent.
    pub fn artefacts(&self, session: SessionId) -> Option<&Artefacts> {
        self.artefacts.get(&session).filter(|known| !known.is_empty())
    }

    /// Stores what a hook report says of the plan and the files of a session's agent.
    pub fn note_artefacts(&mut self, session: SessionId, hook: &Hook) {
        if Artefacts::are_named_by(&hook.signal) {
            self.artefacts.entry(session).or_default().note(hook);
        }
    }

    /// The agent's own name for the turn in which it works its present prompt, if known.
    pub fn turn(&self, session: SessionId) -> Option<&str> {
        self.turns.get(&session).map(String::as_str)
    }

    /// Stores that a session's agent accepted a prompt in the turn of this name.
    pub fn begin_turn(&mut self, session: SessionId, turn: Option<String>) {
        self.ended_by_record.remove(&session);
        self.turns.remove(&session);
        self.turns.extend(turn.map(|turn| (session, turn)));
    }

    /// Stores the end of a turn, as the agent's record or its hook reports it. Returns true if the agent's record had
    /// reported it before.
    pub fn note_end_of_turn(&mut self, session: SessionId, by_record: bool) -> bool {
        if by_record { !self.ended_by_record.insert(session) } else { self.ended_by_record.remove(&session) }
    }

    /// The end of the usage limit after which an agent is told to continue, and the message that tells it, if any.
    pub fn continued(&self, session: SessionId) -> Option<(Timestamp, Option<MessageId>)> {
        self.continued.get(&session).copied()
    }

    /// Stores the end of a usage limit after which an agent is told to continue, by this message.
    pub fn note_continued(&mut self, session: SessionId, until: Timestamp, message: Option<MessageId>) {
        self.continued.insert(session, (until, message));
    }

    /// Forgets all other sessions and incarnations.
    pub fn retain(&mut self, sessions: &BTreeSet<SessionId>, running: &BTreeSet<Tag>) {
        self.turns.retain(|session, _| sessions.contains(session));
        self.ended_by_record.retain(|session| sessions.contains(session));
        self.continued.retain(|session, _| sessions.contains(session));
        self.queued_asks.retain(|session, _| sessions.contains(session));
        self.asked_at.retain(|session, _| sessions.contains(session));
        self.output_at.retain(|session, _| sessions.contains(session));
        self.marks.retain(|tag, _| running.contains(tag));
        self.observed_at.retain(|tag, _| running.contains(tag));
        self.hidden_logs.retain(|tag| running.contains(tag));
        self.under_bells.retain(|tag, _| running.contains(tag));
        self.bells_answered.retain(|tag, _| running.contains(tag));
        self.dismissed.retain(|session, _| sessions.contains(session));
        self.artefacts.retain(|session, _| sessions.contains(session));
    }
}
