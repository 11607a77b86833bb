//! One turn: decisions are taken and applied at once, on disk together, and only then answered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pool::Pool;
use pool::clock::Reading;
use pool::deadlines::Mono;
use protocol::clock::{Clock, ClockStep};
use protocol::message::PROMPT;
use protocol::{Event, Message, MessageId, Seq, SessionId, Stamped, Timestamp};
use store::{Reader, Store, StoreError};
use tokio::sync::{broadcast, oneshot};

use super::{After, Publish, Rest, Waiter};
use crate::clock::Ages;
use crate::view::Seen;

/// One batch of work under way.
pub(crate) struct Turn<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) store: &'a Store,
    pub(crate) rest: &'a mut Rest,
    pub(super) publish: &'a Publish,
    pub(super) reading: Reading,
    pub(super) mono: Mono,
    pub(super) events: Vec<Stamped>,
    pub(super) bodies: Vec<(MessageId, Vec<u8>)>,
    pub(super) news: News,
    pub(super) stirred: bool,
    /// Whether something has to be done at some time.
    pub(super) sooner: bool,
    pub(super) trimmed: bool,
    pub(super) compaction: Option<Compaction>,
}

/// What changed since the waiters last looked.
#[derive(Default)]
pub(super) struct News {
    stirred: bool,
    sessions: BTreeSet<SessionId>,
}

/// Logs a step of the wall clock.
pub(crate) fn log_step(step: ClockStep) {
    let by = i128::from(step.after.0) - i128::from(step.before.0);
    tracing::info!(by_ms = %by, "the clock was set, or the machine slept: nothing is older by that");
}

/// Who wants the database compacted: size before and after.
pub(super) type Compaction = oneshot::Sender<Result<(u64, u64), StoreError>>;

impl Turn<'_> {
    pub(crate) fn pool(&self) -> &Pool {
        self.pool
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.reading.wall
    }

    /// The time since then, without steps of the wall clock and the machine's sleep.
    pub(crate) fn age(&self, at: Timestamp) -> Duration {
        self.pool.age(self.now(), at)
    }

    /// The ages of files now, for work outside of the turn.
    pub(crate) fn ages(&self) -> Ages {
        Ages { clock: self.pool.clock().clone(), now: self.now() }
    }

    /// Puts a step of the wall clock on record, and moves the pauses that it would end or lengthen.
    pub(super) fn clock_stepped(&mut self, (clock, step): (Clock, ClockStep)) {
        log_step(step);
        self.emit_all(pool::budget::shifted(self.pool, step));
        self.emit(Event::ClockRead(Clock { seq: self.pool.seq(), ..clock }));
    }

    /// Puts both clocks on record as they are now: a later start of the daemon goes on from there.
    pub(crate) fn read_clock(&mut self) {
        let clock = pool::clock::refreshed(self.pool.clock(), self.pool.seq(), self.reading);
        self.emit(Event::ClockRead(clock));
    }

    pub(crate) fn mono(&self) -> Mono {
        self.mono
    }

    pub(crate) fn reader(&self) -> Reader {
        self.store.reader()
    }

    /// Where the next journaled event will stand.
    pub(crate) fn next_seq(&self) -> Seq {
        Seq(self.pool.seq().0 + 1)
    }

    /// A fact: true from here on, on disk before anybody outside hears of it.
    pub(crate) fn emit(&mut self, event: Event) {
        let seq = if event.is_journaled() { self.next_seq() } else { self.pool.seq() };
        let stamped = Stamped { seq, at: self.now(), event };
        self.pool.apply(&stamped);
        self.news.sessions.extend(stamped.event.session());
        self.sooner |= has_its_time(&stamped.event);
        if let Event::MessageChanged { id, session, status } = &stamped.event {
            self.rest.work.moved(*id, status, self.mono);
            // The next prompt may be typed now.
            let frees = !status.state.in_flight() && self.pool.message_kind(*session, *id) == Some(PROMPT);
            if frees {
                (self.stirred, self.news.stirred) = (true, true);
            }
        } else if !is_of_workers(&stamped.event) {
            self.stir();
        }
        self.events.push(stamped);
    }

    pub(crate) fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.emit(event));
    }

    /// The body of a message that is queued in this turn.
    pub(crate) fn keep_body(&mut self, id: MessageId, body: Vec<u8>) {
        self.bodies.push((id, body));
    }

    /// A message as it is now, with its body.
    ///
    /// # Errors
    /// As [`Reader::message`].
    pub(crate) fn message(&self, id: MessageId) -> Result<Option<(Message, Vec<u8>)>, StoreError> {
        let mine = self.events.iter().find_map(|stamped| match &stamped.event {
            Event::MessageQueued(message) if message.id == id => Some((**message).clone()),
            _ => None,
        });
        let found = match mine {
            Some(message) => {
                let body = self.bodies.iter().find(|(of, _)| *of == id).map(|(_, body)| body.clone());
                Some((message, body.unwrap_or_default()))
            }
            None => self.store.message(id)?,
        };
        Ok(found.map(|(mut message, body)| {
            for stamped in &self.events {
                if let Event::MessageChanged { id: of, status, .. } = &stamped.event
                    && *of == id
                {
                    message.status = (**status).clone();
                    message.steps.push(status.step());
                }
            }
            (message, body)
        }))
    }

    /// Half of the time has passed that random operation ids are remembered.
    pub(crate) fn age_operations(&mut self) {
        self.pool.age_operations();
    }

    /// Lets everybody who waits for something look again, though no event says so.
    pub(crate) fn stir(&mut self) {
        (self.stirred, self.news.stirred) = (true, true);
    }

    /// Has the journal cut after this turn.
    pub(crate) fn trim(&mut self) {
        self.trimmed = true;
    }

    /// Has the database compacted after this turn.
    pub(crate) fn compact(&mut self, answer: Compaction) {
        self.compaction = Some(answer);
    }

    /// Events from now on. Those of this turn may come too: skip what the state shown already has.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Stamped> {
        self.publish.events.subscribe()
    }

    /// Observations from now on.
    pub(crate) fn subscribe_to_tmux(&self) -> broadcast::Receiver<Arc<Seen>> {
        self.publish.observed.subscribe()
    }

    /// Shows an observation to whoever follows tmux.
    pub(crate) fn show(&self, seen: &Seen) {
        if self.publish.observed.receiver_count() > 0 {
            drop(self.publish.observed.send(Arc::new(seen.clone())));
        }
    }

    /// Lets those look for whom something changed, until nothing new comes of it.
    pub(super) fn look_again(&mut self, after: &mut Vec<After>) {
        loop {
            let news = std::mem::take(&mut self.news);
            let concerned = |waiter: &Waiter| match waiter.session {
                Some(session) => news.stirred || news.sessions.contains(&session),
                None => news.stirred,
            };
            let due: Vec<u64> =
                self.rest.waiters.iter().filter(|(_, waiter)| concerned(waiter)).map(|(id, _)| *id).collect();
            if due.is_empty() {
                return;
            }
            for id in due {
                let Some(mut waiter) = self.rest.waiters.remove(&id) else { continue };
                match (waiter.look)(self) {
                    Some(answer) => after.push(answer),
                    None => drop(self.rest.waiters.insert(id, waiter)),
                }
            }
        }
    }
}

/// Whether only those hear of it who work messages, or wait for something of its session.
fn is_of_workers(event: &Event) -> bool {
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

/// Whether it brings a time at which something is to be done.
fn has_its_time(event: &Event) -> bool {
    match event {
        Event::MessageQueued(message) => message.expires_at.is_some(),
        Event::MessageChanged { status, .. } => status.not_before.is_some(),
        Event::BreakerChanged { breaker, .. } => breaker.is_open(),
        // The lease of a lock.
        Event::LockGranted { .. } => true,
        _ => false,
    }
}
