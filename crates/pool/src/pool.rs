//! The state of a pool. Changed only by [`Pool::apply`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use protocol::clock::Clock;
use protocol::session::Reason;
use protocol::{Epoch, Event, Exit, Lifecycle, OpId, Seq, ServerId, Session, SessionId, Tag, Timestamp};

use crate::agent::record::AgentRecords;
use crate::clock;
use crate::queue::Book;

/// All that a pool remembers in memory: of messages, where they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pool {
    pub(crate) epoch: Epoch,
    pub(crate) build: String,
    pub(crate) boot: String,
    pub(crate) clock: Clock,
    pub(crate) seq: Seq,
    pub(crate) next_session: u64,
    pub(crate) server: Option<ServerId>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Derived: names and workspaces of all sessions.
    pub(crate) names: HashMap<String, SessionId>,
    /// Derived: the tags of current incarnations.
    pub(crate) tags: BTreeSet<(Tag, SessionId)>,
    pub(crate) book: Book,
    pub(crate) retired: BTreeMap<Tag, SessionId>,
    pub(crate) operations: HashMap<OpId, Operation>,
    pub(crate) agents: AgentRecords,
}

/// What is remembered of an operation, so that a repeat gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Digest of its content.
    pub digest: u64,
    /// When it was begun or answered.
    pub at: Timestamp,
    /// How far it is.
    pub state: OperationState,
}

/// How far an operation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationState {
    /// Its outcome hangs on this session.
    Begun(SessionId),
    /// Answered: the encoded reply.
    Done(Vec<u8>),
}

impl Pool {
    /// The daemon's current start number.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The build and the machine's boot at the last start.
    #[must_use]
    pub fn started_by(&self) -> (&str, &str) {
        (&self.build, &self.boot)
    }

    /// What is known of the machine's clocks.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time since then, without steps of the wall clock and the machine's sleep.
    #[must_use]
    pub fn age(&self, now: Timestamp, at: Timestamp) -> Duration {
        clock::age(&self.clock, now, at)
    }

    /// The latest of these times, none of which is later than `now`.
    #[must_use]
    pub fn latest(&self, now: Timestamp, times: impl IntoIterator<Item = Timestamp>) -> Timestamp {
        clock::latest(&self.clock, now, times).unwrap_or_default()
    }

    /// Whether this was earlier than that. Neither is later than `now`, but for a look that began a moment after it.
    #[must_use]
    pub fn is_earlier(&self, now: Timestamp, this: Timestamp, that: Timestamp) -> bool {
        let now = now.max(that);
        clock::moment_by(&self.clock, this, now) < clock::moment_by(&self.clock, that, now)
    }

    /// The wall clock's time when `delay` will have passed since `at`, unless it is set meanwhile.
    #[must_use]
    pub fn time_after(&self, now: Timestamp, at: Timestamp, delay: Duration) -> Timestamp {
        if self.clock.steps.is_empty() {
            return at.after(delay);
        }
        clock::wall(&self.clock, clock::moment_by(&self.clock, at, now).after(delay))
    }

    /// The last event in the journal.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The `N` of the next `sess_N`.
    #[must_use]
    pub fn next_session(&self) -> u64 {
        self.next_session.max(1)
    }

    /// The tmux server that last answered.
    #[must_use]
    pub fn server(&self) -> Option<ServerId> {
        self.server
    }

    /// One session.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// All sessions, by id.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// The session with this name or workspace.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Session> {
        self.names.get(name).and_then(|id| self.sessions.get(id))
    }

    /// The session whose current incarnation has this tag.
    #[must_use]
    pub fn tagged(&self, tag: Tag) -> Option<&Session> {
        let (_, id) = self.tags.range((tag, SessionId(0))..).next().filter(|(found, _)| *found == tag)?;
        self.sessions.get(id)
    }

    /// The session that an ended incarnation belonged to.
    #[must_use]
    pub fn retired(&self, tag: Tag) -> Option<SessionId> {
        self.retired.get(&tag).copied()
    }

    /// The tags of ended incarnations that something may still bear.
    pub fn retired_tags(&self) -> impl Iterator<Item = Tag> {
        self.retired.keys().copied()
    }

    /// What is remembered of an operation.
    #[must_use]
    pub fn operation(&self, op: &OpId) -> Option<&Operation> {
        self.operations.get(op)
    }

    /// All remembered operations.
    pub fn operations(&self) -> impl Iterator<Item = (&OpId, &Operation)> {
        self.operations.iter()
    }

    /// How many slots are taken. A session between two incarnations keeps its slot.
    #[must_use]
    pub fn slots_used(&self) -> usize {
        self.sessions().filter(|s| s.lifecycle.holds_slot() || is_between(s)).count()
    }
}

/// That a session's incarnation is over: why it ended says where the session is then.
#[must_use]
pub fn ended(session: SessionId, reason: Reason, exit: Option<Exit>) -> Event {
    match reason {
        reason if reason.parks() => Event::SessionParked { session, reason, exit },
        Reason::ServerGone => Event::SessionLost { session, reason, exit },
        _ => Event::SessionStopped { session, reason, exit },
    }
}

/// Whether a session's last incarnation is over and the next one, which was asked for, is still to come.
#[must_use]
pub fn is_between(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Stopped && session.reason == Some(Reason::Restarted)
}
