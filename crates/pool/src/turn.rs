//! A turn: decisions are taken one after the other, each on the state that the one before left, and become facts together. The
//! engine of `poold` commits the events of a turn in one transaction, and only then answers; tests look at them.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::message::PROMPT;
use protocol::{Event, MessageId, Seq, SessionId, Stamped, Timestamp};

use crate::clock::Reading;
use crate::deadlines::Mono;
use crate::pool::Pool;
use crate::volatile::Volatile;

/// The state of the pool, the time, and the events of this turn so far.
#[derive(Debug)]
pub struct Turn<'a> {
    pool: &'a mut Pool,
    /// The volatile half of the state.
    pub volatile: &'a mut Volatile,
    reading: Reading,
    mono: Mono,
    output: Output,
}

/// What a turn leaves to be done.
#[derive(Debug, Default)]
pub struct Output {
    /// The events, in order.
    pub events: Vec<Stamped>,
    /// Bodies of messages that were queued.
    pub bodies: Vec<(MessageId, Vec<u8>)>,
    /// True if something changed that tasks outside of the turn may wait for.
    pub is_woken: bool,
    /// True if an event brings a time at which something has to be done.
    pub has_deadline: bool,
    changes: Changes,
}

/// Changes since those who wait within the turn last looked.
#[derive(Debug, Default)]
pub struct Changes {
    any: bool,
    sessions: BTreeSet<SessionId>,
}

impl Changes {
    /// True if someone who waits for something of this session, or of any, has to look again.
    #[must_use]
    pub fn concern(&self, session: Option<SessionId>) -> bool {
        self.any || session.is_some_and(|session| self.sessions.contains(&session))
    }
}

impl<'a> Turn<'a> {
    /// Begins a turn at this reading of the clocks.
    #[must_use]
    pub fn new(pool: &'a mut Pool, volatile: &'a mut Volatile, reading: Reading, mono: Mono) -> Self {
        Self { pool, volatile, reading, mono, output: Output::default() }
    }

    /// Ends the turn.
    #[must_use]
    pub fn finish(self) -> Output {
        self.output
    }

    /// The durable half of the state.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.pool
    }

    /// Both halves of the state.
    pub fn state(&mut self) -> (&Pool, &mut Volatile) {
        (self.pool, self.volatile)
    }

    /// Now, by the wall clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.reading.wall
    }

    /// Both clocks, as read at the begin of the turn.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.reading
    }

    /// Now, by the clock that only goes forward.
    #[must_use]
    pub fn mono(&self) -> Mono {
        self.mono
    }

    /// The time since then, without steps of the wall clock and the machine's sleep.
    #[must_use]
    pub fn age(&self, at: Timestamp) -> Duration {
        self.pool.age(self.now(), at)
    }

    /// The events so far.
    #[must_use]
    pub fn events(&self) -> &[Stamped] {
        &self.output.events
    }

    /// The bodies of messages that were queued so far.
    #[must_use]
    pub fn bodies(&self) -> &[(MessageId, Vec<u8>)] {
        &self.output.bodies
    }

    /// The place of the next event in the journal.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        Seq(self.pool.seq().0 + 1)
    }

    /// Adds a fact: true for the rest of the turn, and on disk before anybody outside hears of it.
    pub fn emit(&mut self, event: Event) {
        let seq = if event.is_journaled() { self.next_seq() } else { self.pool.seq() };
        let stamped = Stamped { seq, at: self.now(), event };
        self.pool.apply(&stamped);
        self.output.changes.sessions.extend(stamped.event.session());
        self.output.has_deadline |= has_deadline(&stamped.event);
        if let Event::MessageChanged { id, session, status } = &stamped.event {
            self.volatile.workers.message_changed(*id, status, self.mono);
            // The next prompt may be typed now.
            let frees = !status.state.in_flight() && self.pool.message_kind(*session, *id) == Some(PROMPT);
            if frees {
                self.wake();
            }
        } else if !concerns_workers_only(&stamped.event) {
            self.wake();
        }
        self.output.events.push(stamped);
    }

    /// Adds facts.
    pub fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.emit(event));
    }

    /// Keeps the body of a message that is queued in this turn.
    pub fn keep_body(&mut self, id: MessageId, body: Vec<u8>) {
        self.output.bodies.push((id, body));
    }

    /// Half of the time has passed for which random operation ids are remembered.
    pub fn age_operations(&mut self) {
        self.pool.age_operations();
    }

    /// Has everybody who waits for something look again, although no event says so.
    pub fn wake(&mut self) {
        (self.output.is_woken, self.output.changes.any) = (true, true);
    }

    /// The changes since this was last called.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.output.changes)
    }
}

/// True for events that matter only to those who work messages, or wait for something of that session.
fn concerns_workers_only(event: &Event) -> bool {
    match event {
        Event::MessageQueued(message) => message.kind != PROMPT,
        Event::MessageForgotten { .. }
        | Event::BreakerChanged { .. }
        | Event::GeneratorRegistered { .. }
        | Event::GeneratorEnded { .. }
        | Event::OperationDone { .. }
        | Event::OperationForgotten { .. } => true,
        _ => false,
    }
}

/// True for events that bring a time at which something has to be done.
fn has_deadline(event: &Event) -> bool {
    match event {
        Event::MessageQueued(message) => message.expires_at.is_some(),
        Event::MessageChanged { status, .. } => status.not_before.is_some(),
        Event::BreakerChanged { breaker, .. } => breaker.is_open(),
        // The lease of a lock.
        Event::LockGranted { .. } => true,
        _ => false,
    }
}
