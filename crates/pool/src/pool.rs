//! The durable state of a pool. Changed only by [`Pool::apply`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use protocol::clock::Clock;
use protocol::{Epoch, Event, OpId, Seq, ServerId, Session, SessionId, Tag, Timestamp};

use crate::agent::record::AgentRecords;
use crate::clock::{self, Moment};
use crate::queue::state::QueueState;
use crate::session::lifecycle::is_restarting;

/// The durable state of a pool, as far as it is in memory: the bodies, keys, reasons and results of messages
/// are not.
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
    /// Derived: the sessions by name and by workspace.
    pub(crate) names: HashMap<String, SessionId>,
    /// Derived: the sessions of the pool's workers.
    pub(crate) workers: BTreeSet<SessionId>,
    /// Derived: the tags of current incarnations.
    pub(crate) tags: BTreeSet<(Tag, SessionId)>,
    pub(crate) queues: QueueState,
    pub(crate) retired: BTreeMap<Tag, SessionId>,
    pub(crate) operations: BTreeMap<OpId, Operation>,
    pub(crate) agents: AgentRecords,
}

/// A remembered operation, so that a repeat gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Digest of the request.
    pub digest: u64,
    /// Time of its beginning or its answer.
    pub at: Timestamp,
    /// The progress.
    pub state: OperationState,
}

impl Operation {
    /// Returns the event that led to its state.
    pub fn event(&self, op: &OpId) -> Event {
        let (op, digest, at) = (op.clone(), self.digest, self.at);
        match &self.state {
            OperationState::Begun(session) => Event::OperationBegun { op, digest, session: *session, at },
            OperationState::Done(reply) => Event::OperationDone { op, digest, reply: reply.clone(), at },
        }
    }
}

/// The progress of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationState {
    /// Begun; the outcome depends on this session.
    Begun(SessionId),
    /// Answered, with this encoded reply.
    Done(Vec<u8>),
}

impl Pool {
    /// The number of this start of the daemon.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The build and the machine's boot id at the last start.
    pub fn started_by(&self) -> (&str, &str) {
        (&self.build, &self.boot)
    }

    /// The last reading of the clocks, and the steps of the wall clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time since `at`, without steps of the wall clock and the machine's sleep.
    pub fn age(&self, now: Timestamp, at: Timestamp) -> Duration {
        clock::age(&self.clock, now, at)
    }

    /// The moment of a past time; the latest one, if the clock showed that time more than once.
    pub fn moment(&self, now: Timestamp, at: Timestamp) -> Moment {
        clock::past_moment(&self.clock, at, now)
    }

    /// The latest of these times, all of which have passed. If the clock was set back, the latest is not always the
    /// greatest.
    pub fn latest(&self, now: Timestamp, times: impl IntoIterator<Item = Timestamp>) -> Timestamp {
        clock::latest(&self.clock, now, times).unwrap_or_default()
    }

    /// Returns the latest of these times, for showing; `None` without any. A time ahead of `now` counts as now, unless
    /// the clock is known to have shown it: it may be that of a file.
    pub fn latest_shown(
        &self,
        now: Timestamp,
        times: impl IntoIterator<Item = Timestamp>,
    ) -> Option<Timestamp> {
        clock::latest(
            &self.clock,
            now,
            times.into_iter().map(|at| if self.is_past(now, at) { at } else { now }),
        )
    }

    /// True if a time has passed: it is no later than `now`, or the clock is known to have shown it before it was set
    /// back. Any other time ahead of `now` may be that of a file, or from before a step back that was too small, or
    /// too shortly before the daemon's end, to be recorded.
    pub(crate) fn is_past(&self, now: Timestamp, at: Timestamp) -> bool {
        at <= now || clock::first_moment(&self.clock, at, now).is_some()
    }

    /// True if `this` was earlier than `that`. Both have passed, or belong to an observation that began a moment after
    /// `now`. A greater timestamp dates from before the clock was set back.
    pub fn is_earlier(&self, now: Timestamp, this: Timestamp, that: Timestamp) -> bool {
        // A time further ahead is from before the clock was set back.
        let now = if that.since(now) < clock::STEP { now.max(that) } else { now };
        clock::moment_by(&self.clock, this, now) < clock::moment_by(&self.clock, that, now)
    }

    /// True if `this` was certainly earlier than `that`, even if the clock was set back and showed one of them more
    /// than once.
    pub fn is_surely_earlier(&self, now: Timestamp, this: Timestamp, that: Timestamp) -> bool {
        let first = clock::first_moment(&self.clock, that, now);
        first.is_some_and(|first| clock::moment_by(&self.clock, this, now) < first)
    }

    /// The wall clock's time at which `delay` will have passed since `at`, unless the clock is set meanwhile.
    pub(crate) fn time_after(&self, now: Timestamp, at: Timestamp, delay: Duration) -> Timestamp {
        if self.clock.steps.is_empty() {
            return at.after(delay);
        }
        clock::wall(&self.clock, clock::moment_by(&self.clock, at, now).after(delay))
    }

    /// The sequence number of the last event in the journal.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The `N` of the next `sess_N`.
    pub fn next_session(&self) -> u64 {
        self.next_session.max(1)
    }

    /// The tmux server that last answered.
    pub fn server(&self) -> Option<ServerId> {
        self.server
    }

    /// The session with this id.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// All sessions, by id.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// The session with this name or workspace.
    pub fn named(&self, name: &str) -> Option<&Session> {
        self.names.get(name).and_then(|id| self.sessions.get(id))
    }

    /// The session whose current incarnation has this tag.
    pub fn tagged(&self, tag: Tag) -> Option<&Session> {
        let (_, id) = self.tags.range((tag, SessionId(0))..).next().filter(|(found, _)| *found == tag)?;
        self.sessions.get(id)
    }

    /// The session that an ended incarnation belonged to.
    pub fn retired(&self, tag: Tag) -> Option<SessionId> {
        self.retired.get(&tag).copied()
    }

    /// True if the tag is on record, for the current incarnation of a session or for an ended one.
    pub fn has_tag(&self, tag: Tag) -> bool {
        self.tagged(tag).is_some() || self.retired.contains_key(&tag)
    }

    /// The tags of ended incarnations that something may still carry.
    pub fn retired_tags(&self) -> impl Iterator<Item = Tag> {
        self.retired.keys().copied()
    }

    /// The remembered operation with this id.
    pub fn operation(&self, op: &OpId) -> Option<&Operation> {
        self.operations.get(op)
    }

    /// All remembered operations.
    pub fn operations(&self) -> impl Iterator<Item = (&OpId, &Operation)> {
        self.operations.iter()
    }

    /// Number of slots in use. A session between the two halves of a restart keeps its slot; the pool's workers
    /// take none.
    pub fn slots_used(&self) -> usize {
        self.user_sessions().filter(|s| s.lifecycle.holds_slot() || is_restarting(s)).count()
    }
}
