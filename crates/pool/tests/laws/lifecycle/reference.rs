//! The lifecycle of sessions in the plainest form.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pool::Settings;
use pool::slots::{MIN_STAY, QUANTUM};
use protocol::policy::RestartPolicy;
use protocol::request::New;
use protocol::{Lifecycle, MessageId, Reason, Session, SessionId, Tag, Timestamp, millis};

/// A session, as the users who requested it know it.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) asked: New,
    pub(crate) pinned: bool,
    /// The waiting prompts, and the one in work.
    pub(crate) waiting: Vec<MessageId>,
    pub(crate) in_flight: Option<MessageId>,
    /// True if the conversation has a prompt.
    pub(crate) spoken: bool,
    /// Automatic starts since the last start by a user, by a clock that never jumps.
    pub(crate) starts: Vec<u64>,
    /// The state in which a user ended it, if no user has started it since.
    pub(crate) ended: Option<Lifecycle>,
    /// True if a rule ended it to start it again, once, and no user has intervened since.
    pub(crate) owed: bool,
    /// True after too many starts, until a user starts it.
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

    /// A user started it, or wants it to stay as it is.
    pub(crate) fn renew(&mut self) {
        (self.ended, self.exhausted, self.owed) = (None, false, false);
        self.starts.clear();
    }

    /// An automatic start; it counts at this time unless it is a wake.
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

/// Volatile inputs about running sessions.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Times at which their programs last wrote something.
    pub(crate) quiet: BTreeMap<SessionId, Timestamp>,
    pub(crate) worked: BTreeMap<Tag, Timestamp>,
    pub(crate) touched: BTreeSet<Tag>,
    pub(crate) busy: BTreeSet<SessionId>,
}

impl Seen {
    /// Place of a session that may be parked for another one: idle ones by their rest, then those with work by
    /// their start.
    pub(crate) fn evictable(
        &self,
        rules: &Settings,
        s: &Session,
        life: &Life,
        now: u64,
    ) -> Option<(bool, u64)> {
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
            return (age >= MIN_STAY || self.worked.contains_key(&run.tag)).then_some((false, since));
        }
        (age >= QUANTUM).then_some((true, run.started_at.0))
    }
}

/// True if a session accepts prompts.
pub(crate) fn accepts(s: &Session) -> bool {
    let on_its_way = [Reason::Evicted, Reason::Idle, Reason::Parked, Reason::Restarted, Reason::ServerGone];
    let passes = s.reason.is_some_and(|reason| on_its_way.contains(&reason));
    let starts = s.budget.due_at.is_some() || !s.budget.exhausted && is_started_by_policy(s);
    match s.lifecycle {
        Lifecycle::Starting | Lifecycle::Live | Lifecycle::Parked | Lifecycle::Lost => true,
        Lifecycle::Draining => s.reason != Some(Reason::Drained) && (passes || starts),
        Lifecycle::Stopped => s.reason == Some(Reason::Restarted) || starts,
        Lifecycle::Failed => starts,
    }
}

/// True if a session whose end its user did not ask for is started again.
fn is_started_by_policy(s: &Session) -> bool {
    let failed = match s.reason {
        Some(Reason::Exited) => s.exit.is_none_or(|exit| exit.code != Some(0)),
        Some(Reason::MemoryLimit | Reason::Hung | Reason::StaleAgent) => true,
        Some(Reason::TmuxFailed | Reason::Setup | Reason::ExecFailed) => s.incarnations > 1,
        Some(Reason::TmuxGone | Reason::StartupMissingTmux) => s.policy.restart == RestartPolicy::Always,
        _ => false,
    };
    let exited = s.reason == Some(Reason::Exited) && s.policy.restart == RestartPolicy::Always;
    s.policy.restart != RestartPolicy::No && (failed || exited)
}
