//! Turns of agents: what they take up, what an outage cuts short, and what they have worked to its end.

use std::collections::BTreeSet;

use protocol::{MessageId, Tag};
use tokio::time::Instant;

use super::{AT_LEAST_ONCE, Judge, Turn};

impl Judge {
    /// Notes that an outage cut short the turn of an agent on this text.
    pub(crate) fn cut_short(&self, tag: Tag, text: &str, conversation: &str) {
        let mut state = self.state();
        // What an agent does that the database does not know any more, the pool cannot know.
        if text.starts_with("prompt") && !state.forgotten.contains(&tag) {
            state.cut_short.insert(text.to_owned(), conversation.to_owned());
        }
    }

    /// True if an outage cut short a turn on this text: it may have been typed as the words to go on since.
    pub(crate) fn is_cut_short(&self, text: &str) -> bool {
        self.state().cut_short.contains_key(text)
    }

    /// Checks that a conversation in which an agent takes up a text does not have it, unless somebody asked for that.
    pub(crate) fn taken(&self, text: &str, conversation: &str) {
        let state = self.state();
        let has_it = state.cut_short.get(text).is_some_and(|known| known == conversation);
        let is_asked_for = state.retried.contains(text) || text.ends_with(AT_LEAST_ONCE);
        drop(state);
        if has_it && !is_asked_for {
            self.violated(format!("Q6: {text:?} was typed once more in the conversation that has it"));
        }
    }

    /// Notes that an agent works on these texts.
    pub(crate) fn works_on(&self, tag: Tag, texts: &BTreeSet<String>) {
        self.state().at_work.insert(tag, Turn { began: Instant::now(), texts: texts.clone() });
    }

    /// Notes that the turn of an agent is over, however it ended.
    pub(crate) fn rests(&self, tag: Tag) {
        let mut state = self.state();
        state.at_work.remove(&tag);
        state.rested_at.insert(tag, Instant::now());
    }

    /// Returns the incarnations whose agents are in a turn on this text, or were at their end.
    pub(crate) fn at_work_on(&self, text: &str) -> BTreeSet<Tag> {
        let state = self.state();
        state.at_work.iter().filter(|(_, turn)| turn.texts.contains(text)).map(|(tag, _)| *tag).collect()
    }

    /// Notes that the turn of an agent on this text has ended in its conversation. What the database does not know any
    /// more counts where it knows that the turn was cut short: the conversation is resumed, and nothing is left to do.
    pub(crate) fn finished(&self, tag: Tag, text: &str, conversation: &str) {
        let mut state = self.state();
        let has_it = state.cut_short.get(text).is_some_and(|known| known == conversation);
        if has_it || !state.forgotten.contains(&tag) {
            state.finished.insert(text.to_owned());
        }
    }

    /// Returns the prompt of this id, if it was sent to an agent that reports, and has not been worked to its end.
    pub(crate) fn unfinished(&self, id: MessageId) -> Option<String> {
        let state = self.state();
        let (session, body) = state.acknowledged.get(&id)?;
        let is_open = body.starts_with("prompt")
            && state.reporting.contains(session)
            && !state.retried.contains(body)
            && !state.finished.iter().any(|text| text.contains(body.as_str()));
        is_open.then(|| body.clone())
    }

    /// Notes that a text stands in one line with something else, which enters it: what becomes of it, nobody can know. So
    /// it is with all texts that were cut short, as it may be the words to go on.
    pub(crate) fn mixed(&self, text: &str) {
        let mut state = self.state();
        let cut_short: Vec<String> = state.cut_short.keys().cloned().collect();
        state.retried.extend(cut_short);
        state.retried.insert(text.to_owned());
    }
}
