//! Inputs of the handling of a hook report.

use std::collections::BTreeMap;

use agents::prompt::TextMatch;
use protocol::Timestamp;
use protocol::activity::Ask;
use protocol::hook::Hook;

use crate::settings::{Agent, QueueRules};

/// Additional inputs to a hook report.
#[derive(Debug, Clone, Copy)]
pub struct HookInputs<'a> {
    /// The table of its agent kind.
    pub agent: &'a Agent,
    /// The rules for queues.
    pub rules: &'a QueueRules,
    /// The agent's name for the turn that its present prompt began, if known.
    pub turn: Option<&'a str>,
    /// Comparison of the reported prompt with the one that was typed last.
    pub text_match: TextMatch,
    /// The agent's questions behind the one that is shown, oldest first.
    pub queued_asks: &'a [Ask],
    /// The times at which it asked its open questions, that of this report included, as far as they are known.
    pub asked_at: Option<&'a BTreeMap<u64, Timestamp>>,
    /// Now.
    pub now: Timestamp,
}

/// True if the report is of before this time. If the time is later than now, the clock was set back since; then only a
/// report that is later than now, too, is known to be from before that step. A report stamped before a step back counts
/// as newer than a time after it.
pub(crate) fn is_before(hook: &Hook, at: Timestamp, now: Timestamp) -> bool {
    hook.at < at && (at <= now || now < hook.at)
}
