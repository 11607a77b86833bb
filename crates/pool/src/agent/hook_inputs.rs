//! Inputs of the handling of a hook report.

use std::collections::BTreeMap;

use agents::prompt::TextMatch;
use protocol::{Ask, Timestamp};

use crate::Pool;
use crate::clock::{Moment, moment_near, moment_of};
use crate::settings::{Agent, QueueRules};

/// Additional inputs to a hook report.
#[derive(Debug, Clone, Copy)]
pub struct HookInputs<'a> {
    /// The table of its agent kind.
    pub agent: &'a Agent,
    pub rules: &'a QueueRules,
    /// The agent's name for the turn that its present prompt began, if known.
    pub turn: Option<&'a str>,
    /// Comparison of the reported prompt with the one that was typed last.
    pub text_match: TextMatch,
    /// The agent's questions behind the one that is shown, oldest first.
    pub queued_asks: &'a [Ask],
    /// The moments at which it asked its open questions, as far as they are known.
    pub asked_at: Option<&'a BTreeMap<u64, Moment>>,
    /// The moment of the report.
    pub moment: Moment,
    pub now: Timestamp,
}

/// True if a report, made at `moment`, is older than the recorded time `at`, even if the wall clock was set in between.
/// If the clock was set back and showed `at` more than once, the moment nearest to the report counts, as few reports
/// are late. If the clock is not known to have shown `at` yet, `at` dates from before an unrecorded step back: a report
/// up to now then counts as newer.
pub fn is_before(pool: &Pool, (moment, now): (Moment, Timestamp), at: Timestamp) -> bool {
    let is_ahead = || moment_of(pool.clock(), now, now) < moment;
    moment < moment_near(pool.clock(), at, now, moment) && (pool.is_past(now, at) || is_ahead())
}
