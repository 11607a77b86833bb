//! What sessions' lives are, as plainly as it can be said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pool::Settings;
use pool::slots::{STAY, TURN};
use protocol::request::New;
use protocol::session::Reason;
use protocol::time::millis;
use protocol::{Lifecycle, MessageId, Session, SessionId, Tag, Timestamp};

/// A session, as those know it who asked for it.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) asked: New,
    pub(crate) pinned: bool,
    /// Prompts that wait, and the one that is worked.
    pub(crate) waiting: Vec<MessageId>,
    pub(crate) in_flight: Option<MessageId>,
    /// Whether something was said in its conversation.
    pub(crate) spoken: bool,
    /// Its starts by itself since somebody started it, by a clock that never jumps.
    pub(crate) starts: Vec<u64>,
    /// Somebody ended it, and nobody started it since.
    pub(crate) ended: Option<Lifecycle>,
    /// A rule ended it and starts it again, once: nobody said otherwise since.
    pub(crate) owed: bool,
    /// There were too many starts, and nobody started it since.
    pub(crate) exhausted: bool,
}

impl Life {
    pub(crate) fn prompts(&self) -> Vec<MessageId> {
        self.in_flight.iter().chain(&self.waiting).copied().collect()
    }

    pub(crate) fn is_parkable(&self) -> bool {
        self.asked.agent.as_deref() != Some("shell")
    }

    pub(crate) fn can_resume(&self) -> bool {
        self.asked.agent.as_deref() == Some("claude")
    }

    /// It was started by somebody, or is to stay as it is.
    pub(crate) fn renew(&mut self) {
        (self.ended, self.exhausted, self.owed) = (None, false, false);
        self.starts.clear();
    }

    /// It is started by itself: then, where that is no wake.
    pub(crate) fn start(&mut self, settings: &Settings, mono: Option<u64>) {
        self.owed = false;
        let Some(mono) = mono else { return };
        self.starts.push(mono);
        let window = millis(settings.restart.window);
        let max = self.asked.max_restarts.unwrap_or(settings.restart.max).max(1);
        let recent = self.starts.iter().filter(|at| mono - **at < window).count();
        assert!(recent <= max as usize, "{recent} starts of {max}: {:?} at {mono}", self.starts);
    }
}

/// What is known of running sessions.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When their programs last wrote something.
    pub(crate) quiet: BTreeMap<SessionId, Timestamp>,
    pub(crate) worked: BTreeMap<Tag, Timestamp>,
    pub(crate) touched: BTreeSet<Tag>,
    pub(crate) busy: BTreeSet<SessionId>,
}

impl Seen {
    /// Since when it has been idle, if it may be parked for another session now.
    pub(crate) fn evictable(&self, rules: &Settings, s: &Session, life: &Life, now: u64) -> Option<u64> {
        let run = s.incarnation.as_ref().filter(|_| s.lifecycle == Lifecycle::Live)?;
        let age = Duration::from_millis(now.saturating_sub(run.started_at.0));
        let alone = s.attached_clients == 0 && !self.busy.contains(&s.id);
        let since = self.quiet.get(&s.id)?.0.max(s.last_activity_at.0);
        let given = self.worked.get(&run.tag).map(|at| now.saturating_sub(at.0));
        let settled = given.is_none_or(|age| age >= millis(rules.idle_settle));
        let still = settled && now.saturating_sub(since) >= millis(rules.idle_quiet);
        if !life.is_parkable() || life.pinned || !alone || !still || life.in_flight.is_some() {
            return None;
        }
        if life.waiting.is_empty() {
            return (age >= STAY || self.worked.contains_key(&run.tag)).then_some(since);
        }
        (age >= TURN).then_some(run.started_at.0)
    }
}

/// Whether it takes a prompt.
pub(crate) fn accepts(s: &Session) -> bool {
    let on_its_way = [Reason::Evicted, Reason::Idle, Reason::Parked, Reason::Restarted, Reason::ServerGone];
    let passes = s.reason.is_some_and(|reason| on_its_way.contains(&reason));
    match s.lifecycle {
        Lifecycle::Starting | Lifecycle::Live | Lifecycle::Parked | Lifecycle::Lost => true,
        Lifecycle::Draining => passes || s.budget.due_at.is_some(),
        Lifecycle::Stopped => s.reason == Some(Reason::Restarted) || s.budget.due_at.is_some(),
        Lifecycle::Failed => s.budget.due_at.is_some(),
    }
}
