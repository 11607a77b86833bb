//! A turn: decisions are taken one after the other, each on the state that the one before left. `poold`
//! commits the events of a turn in one transaction, and only then answers.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::{Event, MessageId, PROMPT, Seq, SessionId, Stamped, Timestamp, variants};

use crate::agent::former_conversation::end_of_facts;
use crate::clock::{Moment, Reading};
use crate::deadlines::Mono;
use crate::observe::state::Beginning;
use crate::pool::Pool;
use crate::volatile::Volatile;

/// Both halves of the state, the time, and the events of this turn so far.
#[derive(Debug)]
pub struct Turn<'a> {
    pool: &'a mut Pool,
    /// The volatile half of the state.
    pub volatile: &'a mut Volatile,
    reading: Reading,
    mono: Mono,
    output: Output,
}

/// The result of a turn.
#[derive(Debug, Default)]
pub struct Output {
    /// The events, in order.
    pub events: Vec<Stamped>,
    /// The bodies of messages that were queued.
    pub bodies: Vec<(MessageId, Vec<u8>)>,
    /// True if something changed that tasks outside the turn may wait for.
    pub is_woken: bool,
    /// True if an event brings a time at which something has to be done.
    pub has_deadline: bool,
    changes: Changes,
}

/// Changes since the tasks that wait within the turn last looked.
#[derive(Debug, Default)]
pub struct Changes {
    any: bool,
    sessions: BTreeSet<SessionId>,
}

/// The changes that a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// Any but those of messages.
    Others,
    /// Any, and those of this session's messages.
    Session(SessionId),
    /// Any, and those of all messages.
    Everything,
}

impl Changes {
    /// True if a task that waits for these changes has to look again.
    pub fn concern(&self, waits_for: WaitsFor) -> bool {
        let of_session = match waits_for {
            WaitsFor::Others => false,
            WaitsFor::Session(session) => self.sessions.contains(&session),
            WaitsFor::Everything => !self.sessions.is_empty(),
        };
        self.any || of_session
    }
}

impl<'a> Turn<'a> {
    /// Begins a turn at this reading of the clocks.
    pub fn new(pool: &'a mut Pool, volatile: &'a mut Volatile, reading: Reading, mono: Mono) -> Self {
        Self { pool, volatile, reading, mono, output: Output::default() }
    }

    /// Ends the turn.
    pub fn finish(self) -> Output {
        self.output
    }

    /// The durable half of the state.
    pub fn pool(&self) -> &Pool {
        self.pool
    }

    /// Both halves of the state.
    pub fn state(&mut self) -> (&Pool, &mut Volatile) {
        (self.pool, self.volatile)
    }

    /// Now, by the wall clock.
    pub fn now(&self) -> Timestamp {
        self.reading.wall
    }

    /// Both clocks, as read at the beginning of the turn.
    pub fn reading(&self) -> Reading {
        self.reading
    }

    /// Now, in the time that records are compared by.
    pub fn moment(&self) -> Moment {
        self.pool.moment(self.now(), self.now())
    }

    /// Now, by the monotonic clock.
    pub fn mono(&self) -> Mono {
        self.mono
    }

    /// The time since `at`, without steps of the wall clock and the machine's sleep.
    pub fn age(&self, at: Timestamp) -> Duration {
        self.pool.age(self.now(), at)
    }

    /// The beginning of an observation that began this long ago.
    pub fn beginning(&self, age: Duration) -> Beginning {
        let age_ms = protocol::time::millis(age);
        Beginning { moment: self.moment().before(age), mono: Mono(self.mono.0.saturating_sub(age_ms)) }
    }

    /// The events so far.
    pub fn events(&self) -> &[Stamped] {
        &self.output.events
    }

    /// The bodies of messages that were queued so far.
    pub fn bodies(&self) -> &[(MessageId, Vec<u8>)] {
        &self.output.bodies
    }

    /// The position of the next event in the journal.
    pub fn next_seq(&self) -> Seq {
        Seq(self.pool.seq().0 + 1)
    }

    /// Adds an event. It holds for the rest of the turn, and is on disk before anything outside learns of it.
    pub fn emit(&mut self, event: Event) {
        let ended = end_of_facts(self.pool, &event);
        self.emit_one(event);
        ended.into_iter().for_each(|event| self.emit_one(event));
    }

    fn emit_one(&mut self, event: Event) {
        let seq = if event.is_journaled() { self.next_seq() } else { self.pool.seq() };
        let stamped = Stamped { seq, at: self.now(), event };
        self.pool.apply(&stamped);
        self.output.changes.sessions.extend(stamped.event.session());
        let Consequences { is_local, has_deadline } = Consequences::of(&stamped.event);
        self.output.has_deadline |= has_deadline;
        let frees_prompt = self.follow_message(&stamped.event);
        if frees_prompt || !is_local {
            self.wake();
        }
        self.output.events.push(stamped);
    }

    /// Keeps the leases of workers in step with a message. Returns true if the next prompt may be typed now.
    fn follow_message(&mut self, event: &Event) -> bool {
        let Event::MessageChanged { id, session, status } = event else { return false };
        self.volatile.workers.message_changed(*id, status, self.mono);
        !status.state.in_flight() && self.pool.message_kind(*session, *id) == Some(PROMPT)
    }

    /// Adds events.
    pub fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.emit(event));
    }

    /// Keeps the body of a message that is queued in this turn.
    pub fn keep_body(&mut self, id: MessageId, body: Vec<u8>) {
        self.output.bodies.push((id, body));
    }

    /// Forgets the older generation of random operation ids. Called twice per period for which they are
    /// remembered.
    pub fn age_operations(&mut self) {
        self.pool.age_operations();
    }

    /// Makes all waiting tasks look again, although no event tells them.
    pub fn wake(&mut self) {
        (self.output.is_woken, self.output.changes.any) = (true, true);
    }

    /// Makes the tasks that wait for conditions look again. The loops have nothing new to do.
    pub fn recheck(&mut self) {
        self.output.changes.any = true;
    }

    /// The changes since this was last called.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.output.changes)
    }
}

/// The consequences of an event for tasks that wait.
struct Consequences {
    /// True if only tasks that wait for messages, or for the event's session, have to look again.
    is_local: bool,
    /// True if the event brings a time at which something has to be done.
    has_deadline: bool,
}

impl Consequences {
    /// For an event that any task may wait for.
    const GLOBAL: Self = Self { is_local: false, has_deadline: false };
    /// For an event that matters to few.
    const LOCAL: Self = Self { is_local: true, has_deadline: false };

    /// One arm for each event, so that a new one cannot be forgotten.
    fn of(event: &Event) -> Self {
        match event {
            Event::MessageQueued(message) => {
                let is_local = message.kind != PROMPT;
                Self { is_local, has_deadline: message.expires_at.is_some() }
            }
            Event::MessageChanged { status, .. } => {
                Self { is_local: true, has_deadline: status.not_before.is_some() }
            }
            Event::BreakerChanged { breaker, .. } => Self { is_local: true, has_deadline: breaker.is_open() },
            // The lease of the lock.
            Event::LockGranted { .. } => Self { is_local: false, has_deadline: true },
            variants!(Event:
                MessageForgotten GeneratorRegistered GeneratorEnded Lane OperationDone OperationForgotten
                ClockRead
            ) => Self::LOCAL,
            variants!(Event:
                PoolStarted NextSession TagRetired TagForgotten TmuxServerChanged OperationBegun
                SessionCreated SessionStarting SessionPlaced SessionLive SessionObserved SessionDraining
                SessionStopped SessionParked SessionLost SessionFailed SessionDeleted SessionRenamed
                SessionLabelled SessionPolicyChanged SessionAccounted BudgetChanged WorkerChanged
                ConversationChanged LockUsedForSend LockReleased LockRevoked Agent ReapStarted ReapFinished
                StaleFound LimitExceeded WatcherConnected WatcherLost ForeignSeen ForeignGone DrainDeadlineSet
                GraceAsked KeysPressed LogResumed
            ) => Self::GLOBAL,
        }
    }
}
