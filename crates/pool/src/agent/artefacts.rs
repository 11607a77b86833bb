//! The plan and the files of a session's agent, as its hooks name them. Volatile, and of its present
//! conversation.

use std::collections::VecDeque;

use protocol::hook::{HookEvent, Start};

/// Maximum number of files that are remembered.
const FILES_MAX: usize = 100;

/// The plan that an agent last proposed and the files that it wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Artefacts {
    plan: Option<String>,
    files: VecDeque<String>,
}

impl Artefacts {
    /// The plan that was last proposed, approved or not.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// The files that were written, the last one first.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// True if a report begins a conversation that knows nothing of earlier plans and files.
    pub(super) fn begin_anew(signal: &HookEvent) -> bool {
        matches!(signal, HookEvent::Started { source: Start::New | Start::Cleared })
    }

    /// True if a report may name a plan or a file.
    pub(super) fn are_named_by(signal: &HookEvent) -> bool {
        matches!(signal, HookEvent::Asking { plan: Some(_), .. } | HookEvent::ToolUsed(_))
    }

    /// Stores the plan or the file that a report names.
    pub(super) fn note(&mut self, signal: &HookEvent) {
        match signal {
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
