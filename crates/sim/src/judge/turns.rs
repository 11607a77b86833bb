//! Turns of agents: what they take up, what an outage cuts short, and what they have worked to its end.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::{MessageId, SessionId, Tag, Timestamp};
use tokio::time::Instant;

use super::{AT_LEAST_ONCE, Judge, Turn};

/// Time within which the pool has to be told that a question was answered: reports of it may be late, spooled or
/// repeated.
const TOLD_WITHIN: Duration = Duration::from_secs(120);

impl Judge {
    /// Notes that an outage cut short the turn of an agent on this text.
    pub(crate) fn cut_short(&self, tag: Tag, text: &str, conversation: &str) {
        let mut state = self.state();
        // The pool cannot know what is done by an agent that the restored database does not contain.
        if text.starts_with("prompt") && !state.forgotten.contains(&tag) {
            state.cut_short.insert(text.to_owned(), conversation.to_owned());
        }
    }

    /// True if an outage cut short a turn on this text. From then on it may have been typed once more, as the words
    /// that make the agent go on.
    pub(crate) fn is_cut_short(&self, text: &str) -> bool {
        self.state().cut_short.contains_key(text)
    }

    /// Checks that an agent does not get a text that its conversation already has, unless somebody asked for that.
    pub(crate) fn taken(&self, text: &str, conversation: &str) {
        let state = self.state();
        let has_it = state.cut_short.get(text).is_some_and(|known| known == conversation);
        let is_asked_for = state.retried.contains(text) || text.ends_with(AT_LEAST_ONCE);
        drop(state);
        if has_it && !is_asked_for {
            self.violated(format!("Q6: {text:?} was typed once more in the conversation that has it"));
        }
    }

    /// Notes that an agent works on these texts. `is_told` if it has reported that, and the daemon has the report.
    pub(crate) fn works_on(&self, tag: Tag, texts: &BTreeSet<String>, is_told: bool) {
        let turn = Turn { began: Instant::now(), is_told, texts: texts.clone() };
        self.state().at_work.insert(tag, turn);
    }

    /// Notes that the turn of an agent is over, however it ended.
    pub(crate) fn rests(&self, tag: Tag) {
        let mut state = self.state();
        state.at_work.remove(&tag);
        state.rested_at.insert(tag, Instant::now());
    }

    /// True if an agent that reports its turns is in none.
    pub(crate) fn is_at_rest(&self, tag: Tag, session: SessionId) -> bool {
        let state = self.state();
        let is_known = state.started.contains_key(&tag) && !state.forgotten.contains(&tag);
        is_known && state.reporting.contains(&session) && !state.at_work.contains_key(&tag)
    }

    /// Notes whether the screen of an agent shows a dialog from now on.
    pub(crate) fn shows(&self, tag: Tag, is_dialog: bool) {
        let mut state = self.state();
        if is_dialog {
            state.dialogs.insert(tag, None);
        } else if let Some(ends) = state.dialogs.get_mut(&tag) {
            ends.get_or_insert_with(Instant::now);
        }
    }

    /// Checks that an agent that is said to ask a person has done so: its screen shows a dialog, or did so a short time
    /// ago.
    pub(crate) fn said_to_ask(&self, session: SessionId, tag: Tag) {
        self.count("checked:asks");
        let state = self.state();
        let has_asked =
            state.dialogs.get(&tag).is_some_and(|ends| ends.is_none_or(|at| at.elapsed() < TOLD_WITHIN));
        let stood_still = state.still_until.is_some_and(|until| Instant::now() < until + TOLD_WITHIN);
        let is_excused = stood_still || state.forgotten.contains(&tag) || state.limited.contains(&session);
        drop(state);
        if !has_asked && !is_excused {
            self.violated(format!("O: {session} is said to ask a person, and {tag} shows no question"));
        }
    }

    /// Returns the incarnations whose agents are in a turn on this text, or were when they ended.
    pub(crate) fn at_work_on(&self, text: &str) -> BTreeSet<Tag> {
        let state = self.state();
        state.at_work.iter().filter(|(_, turn)| turn.texts.contains(text)).map(|(tag, _)| *tag).collect()
    }

    /// Notes that the turn of an agent on this text has ended in its conversation. If the database has forgotten the
    /// agent, the end counts only where the database knows that the turn was cut short: that conversation is resumed,
    /// and nothing is left to do.
    pub(crate) fn finished(&self, tag: Tag, text: &str, conversation: &str) {
        let mut state = self.state();
        let has_it = state.cut_short.get(text).is_some_and(|known| known == conversation);
        if has_it || !state.forgotten.contains(&tag) {
            state.finished.insert(text.to_owned());
        }
    }

    /// Notes that the daemon has an agent's report that its turn on these texts ended well, or finds it in the spool.
    pub(crate) fn succeeded(&self, tag: Tag, texts: &BTreeSet<String>, at: Timestamp) {
        let mut state = self.state();
        if !state.forgotten.contains(&tag) {
            state.succeeded.extend(texts.iter().map(|text| (text.clone(), at)));
        }
    }

    /// Notes that reports in the spool were cut off, which may be those of turns that ended well.
    pub(crate) fn lost_reports(&self) {
        self.state().succeeded.clear();
    }

    /// True if a turn on this text ended well, and that was reported before this time. Where the text may have been
    /// typed more than once, nothing is known.
    pub(crate) fn has_succeeded(&self, text: &str, before: Timestamp) -> bool {
        let state = self.state();
        let may_repeat = state.retried.contains(text)
            || state.cut_short.contains_key(text)
            || text.ends_with(AT_LEAST_ONCE);
        !may_repeat && state.succeeded.get(text).is_some_and(|at| *at < before)
    }

    /// Returns the body of this message if it is a prompt to an agent that reports its turns, and no turn has completed
    /// it.
    pub(crate) fn unfinished(&self, id: MessageId) -> Option<String> {
        let state = self.state();
        let (session, body) = state.acknowledged.get(&id)?;
        let is_open = body.starts_with("prompt")
            && state.reporting.contains(session)
            && !state.retried.contains(body)
            && !state.finished.iter().any(|text| text.contains(body.as_str()));
        is_open.then(|| body.clone())
    }

    /// Notes that a text shares a line with another text that was entered with it: nobody can know what becomes of it.
    /// The same holds for all texts that were cut short, since it may be the words that make an agent go on.
    pub(crate) fn mixed(&self, text: &str) {
        let mut state = self.state();
        let cut_short: Vec<String> = state.cut_short.keys().cloned().collect();
        cut_short.into_iter().for_each(|text| state.retried.grant(text));
        state.retried.grant(text.to_owned());
    }
}
