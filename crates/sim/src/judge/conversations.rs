//! Conversations of agents of which the pool hears nothing: those to which only a person spoke are not resumed.

use protocol::Tag;

use super::{INPUT, Judge};

impl Judge {
    /// Notes the conversation of an incarnation.
    pub(crate) fn converses(&self, tag: Tag, conversation: &str) {
        self.state().quiet.of.insert(tag, conversation.to_owned());
    }

    /// Notes that an agent has read a line.
    pub(crate) fn was_told(&self, conversation: &str, line: &str) {
        let quiet = &mut self.state().quiet;
        let by = if line.starts_with(INPUT.trim_end()) { &mut quiet.by_person } else { &mut quiet.by_pool };
        by.insert(conversation.to_owned());
    }

    /// True if a conversation is lost when the pool parks this incarnation: a person spoke to it, and the pool did not.
    pub(crate) fn loses_words(&self, tag: Tag) -> bool {
        let state = self.state();
        let quiet = &state.quiet;
        let Some(conversation) = quiet.of.get(&tag).filter(|_| !state.forgotten.contains(&tag)) else {
            return false;
        };
        let same = quiet.of.iter().filter(|(_, other)| *other == conversation);
        let is_pasted = same.into_iter().any(|(tag, _)| quiet.pasted.contains(tag));
        quiet.by_person.contains(conversation) && !quiet.by_pool.contains(conversation) && !is_pasted
    }
}
