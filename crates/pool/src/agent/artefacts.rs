//! The plan and the files of a session's agent, as its hooks name them. They are volatile, and belong to the agent's
//! current conversation.

use std::collections::VecDeque;

use protocol::hook::{Hook, HookEvent, Start};

/// Maximum number of files that are remembered.
const FILES_MAX: usize = 100;

/// The plan that an agent last proposed and the files that it wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Artefacts {
    /// The conversation that they are of, if known.
    conversation: Option<String>,
    plan: Option<String>,
    files: VecDeque<String>,
}

impl Artefacts {
    /// The plan that was last proposed, approved or not.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// The files that were written, the last one first.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// True if nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.plan.is_none() && self.files.is_empty()
    }

    /// True if a report may name a plan, a file, or a conversation.
    pub(super) fn are_named_by(signal: &HookEvent) -> bool {
        matches!(
            signal,
            HookEvent::Asking { plan: Some(_), .. } | HookEvent::ToolUsed(_) | HookEvent::Started { .. }
        )
    }

    /// Forgets everything if another conversation begins, or if the agent begins one without naming it. A compacted
    /// conversation continues.
    fn begin(&mut self, source: Start, conversation: Option<&String>) {
        let goes_on = match (&self.conversation, conversation) {
            _ if source == Start::Cleared => false,
            (Some(known), Some(begun)) if known == begun => true,
            (Some(_), Some(_)) => matches!(source, Start::Compacted | Start::CompactedOnCommand),
            _ => source != Start::New,
        };
        if !goes_on {
            *self = Self::default();
        }
        self.conversation = conversation.or(self.conversation.as_ref()).cloned();
    }

    /// Stores the plan, the file or the conversation that a report names.
    pub(super) fn note(&mut self, hook: &Hook) {
        // The start of the conversation may have been reported to an earlier daemon.
        let begins = matches!(hook.signal, HookEvent::Started { .. });
        if self.conversation.is_none() && !begins {
            self.conversation.clone_from(&hook.conversation);
        }
        match &hook.signal {
            HookEvent::Started { source } => self.begin(*source, hook.conversation.as_ref()),
            HookEvent::Asking { plan: Some(plan), .. } => self.plan = Some(plan.clone()),
            HookEvent::ToolUsed(used) if !used.failed => {
                let Some(file) = agents::payload::written_file(&used.tool, &used.input) else { return };
                self.files.retain(|known| *known != file);
                self.files.push_front(file);
                self.files.truncate(FILES_MAX);
            }
            _ => {}
        }
    }
}
