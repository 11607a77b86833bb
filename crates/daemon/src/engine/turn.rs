//! One turn of the engine: the core's turn, with the store behind it and the tasks that wait for something.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use pool::WaitsFor;
use protocol::clock::{Clock, ClockStep};
use protocol::{Event, Message, MessageId, Stamped};
use store::{Reader, Store, StoreError};
use tokio::sync::{broadcast, oneshot};

use crate::engine::publish::{ObservedTmux, Publisher};
use crate::engine::waiters::Waiters;
use crate::host::clock::FileAges;

/// A piece of work: decides within the turn. Its completion answers after the commit.
pub(crate) type Work = Box<dyn FnOnce(&mut Turn<'_>) -> Completion + Send>;

/// The rest of a piece of work, run once the turn is on disk.
pub(crate) type Completion = Box<dyn FnOnce() + Send>;

/// Checks a condition. Returns the completion once it is true.
pub(crate) type Check = Box<dyn FnMut(&mut Turn<'_>) -> Option<Completion> + Send>;

/// A task that waits for a condition.
pub(crate) struct Condition {
    /// The changes after which the condition is checked.
    pub(crate) waits_for: WaitsFor,
    pub(crate) check: Check,
}

/// Tasks that wait for conditions, by ticket.
pub(crate) type Conditions = BTreeMap<u64, Condition>;

/// One batch of work in progress.
pub(crate) struct Turn<'a> {
    core: pool::Turn<'a>,
    store: &'a Store,
    /// Tasks that wait for a lock, an operation or a decision.
    pub(crate) waiting: &'a mut Waiters,
    pub(crate) conditions: &'a mut Conditions,
    publish: &'a Publisher,
    requests: Requests,
    /// True once messages have expired in this turn.
    expired: bool,
}

/// Bounds of the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalRetention {
    /// Maximum number of events.
    pub(crate) events: u64,
    /// Maximum age of an event.
    pub(crate) age: Duration,
}

/// Requests of a turn to the engine itself.
#[derive(Default)]
pub(super) struct Requests {
    /// New bounds of the journal.
    pub(super) retention: Option<JournalRetention>,
    /// True to end the engine after this turn.
    pub(super) stop: bool,
    /// True to trim the journal after this turn.
    pub(super) trim: bool,
    /// Compacts the database after this turn.
    pub(super) compaction: Option<CompactionReply>,
}

/// Receives the size before and after a compaction, in bytes.
pub(super) type CompactionReply = oneshot::Sender<Result<(u64, u64), StoreError>>;

impl<'a> Deref for Turn<'a> {
    type Target = pool::Turn<'a>;

    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.core
    }
}

/// Logs a step of the wall clock.
pub(crate) fn log_step(step: ClockStep) {
    let by = i128::from(step.after.0) - i128::from(step.before.0);
    tracing::info!(by_ms = %by, "the clock was set, or the machine slept: ages do not count that time");
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        core: pool::Turn<'a>,
        store: &'a Store,
        (waiting, conditions): (&'a mut Waiters, &'a mut Conditions),
        publish: &'a Publisher,
    ) -> Self {
        Self { core, store, waiting, conditions, publish, requests: Requests::default(), expired: false }
    }

    /// Returns true the first time in this turn: one batch of messages expires in each.
    pub(crate) fn begin_expiry(&mut self) -> bool {
        !std::mem::replace(&mut self.expired, true)
    }

    /// Ends the turn.
    pub(super) fn finish(self) -> (pool::Output, Requests) {
        (self.core.finish(), self.requests)
    }

    /// Returns the clock state for computing ages of files outside of the turn.
    pub(crate) fn file_ages(&self) -> FileAges {
        FileAges { clock: self.pool().clock().clone(), now: self.now() }
    }

    /// Records a step of the wall clock, and shifts the pauses that it would end or lengthen.
    pub(super) fn clock_stepped(&mut self, (clock, step): (Clock, ClockStep)) {
        log_step(step);
        let shifted = pool::shift_pauses(self.pool(), step);
        self.emit_all(shifted);
        let seq = self.pool().seq();
        self.emit(Event::ClockRead(Clock { seq, ..clock }));
        self.wake();
    }

    /// Records both clocks, so that a later start of the daemon detects steps since then.
    pub(crate) fn record_clock(&mut self) {
        let clock = pool::clock::refreshed(self.pool().clock(), self.pool().seq(), self.reading());
        self.emit(Event::ClockRead(clock));
    }

    /// Records both clocks in the commit of this turn, unless one of its events tells the time. After a restart of the
    /// machine no recorded reply may be later than the last known time. Observations may, as their times are only
    /// shown.
    pub(super) fn record_time_of_commit(&mut self) {
        let mut written =
            self.events().iter().filter(|s| !matches!(s.event, Event::SessionObserved { .. })).peekable();
        let tells_time = |event: &Event| event.is_journaled() || matches!(event, Event::ClockRead(_));
        if written.peek().is_some() && !written.any(|stamped| tells_time(&stamped.event)) {
            self.record_clock();
        }
    }

    pub(crate) fn reader(&self) -> Reader {
        self.store.reader()
    }

    /// Returns a message with its body, including the changes of this turn.
    pub(crate) fn message(&self, id: MessageId) -> Result<Option<(Message, Vec<u8>)>, StoreError> {
        let queued = self.events().iter().find_map(|stamped| match &stamped.event {
            Event::MessageQueued(message) if message.id == id => Some((**message).clone()),
            _ => None,
        });
        let found = match queued {
            Some(message) => {
                let body = self.bodies().iter().find(|(of, _)| *of == id).map(|(_, body)| body.clone());
                Some((message, body.unwrap_or_default()))
            }
            None => self.store.message(id)?,
        };
        Ok(found.map(|(mut message, body)| {
            for stamped in self.events() {
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

    /// Requests a trim of the journal after this turn.
    pub(crate) fn trim(&mut self) {
        self.requests.trim = true;
    }

    /// Sets the bounds of the journal.
    pub(crate) fn set_retention(&mut self, retention: JournalRetention) {
        self.requests.retention = Some(retention);
    }

    /// Ends the engine after this turn.
    pub(crate) fn stop_engine(&mut self) {
        self.requests.stop = true;
    }

    /// Requests a compaction of the database after this turn.
    pub(crate) fn compact(&mut self, answer: CompactionReply) {
        self.requests.compaction = Some(answer);
    }

    /// Subscribes to events. Those of this turn may be delivered too: the caller skips what its state already
    /// contains.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Stamped> {
        self.publish.events.subscribe()
    }

    pub(crate) fn subscribe_to_tmux(&self) -> broadcast::Receiver<Arc<ObservedTmux>> {
        self.publish.tmux.subscribe()
    }

    pub(crate) fn publish_tmux(&self, observed: &ObservedTmux) {
        if self.publish.tmux.receiver_count() > 0 {
            drop(self.publish.tmux.send(Arc::new(observed.clone())));
        }
    }

    /// Checks the conditions that the turn's changes may have made true, until there are no further changes.
    pub(super) fn check_conditions(&mut self, after: &mut Vec<Completion>) {
        loop {
            let changes = self.take_changes();
            let concerned = self.conditions.iter().filter(|(_, waiter)| changes.concern(waiter.waits_for));
            let due: Vec<u64> = concerned.map(|(ticket, _)| *ticket).collect();
            if due.is_empty() {
                return;
            }
            for id in due {
                let Some(mut waiter) = self.conditions.remove(&id) else { continue };
                match (waiter.check)(self) {
                    Some(answer) => after.push(answer),
                    None => drop(self.conditions.insert(id, waiter)),
                }
            }
        }
    }
}
