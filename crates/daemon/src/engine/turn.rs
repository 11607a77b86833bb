//! One turn of the engine: the core's turn, with the store behind it and the tasks that wait for something.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use protocol::clock::{Clock, ClockStep};
use protocol::{Event, Message, MessageId, SessionId, Stamped};
use store::{Reader, Store, StoreError};
use tokio::sync::{broadcast, oneshot};

use crate::engine::publish::{Publish, Sighting};
use crate::engine::waiting::Waiting;
use crate::host::clock::Ages;

/// A piece of work: decides within the turn, answers after the commit.
pub(crate) type Job = Box<dyn FnOnce(&mut Turn<'_>) -> After + Send>;

/// The rest of a piece of work, done once the turn is on disk.
pub(crate) type After = Box<dyn FnOnce() + Send>;

/// Looks whether a condition has come true. Returns the rest of the work if it has.
pub(crate) type Look = Box<dyn FnMut(&mut Turn<'_>) -> Option<After> + Send>;

/// A task that waits for a condition.
pub(crate) struct Condition {
    /// Looks also after changes that concern nothing but messages of this session.
    pub(crate) session: Option<SessionId>,
    pub(crate) look: Look,
}

/// Tasks that wait for conditions, by ticket.
pub(crate) type Conditions = BTreeMap<u64, Condition>;

/// One batch of work under way.
pub(crate) struct Turn<'a> {
    core: pool::Turn<'a>,
    store: &'a Store,
    /// Tasks that wait for something.
    pub(crate) waiting: &'a mut Waiting,
    pub(crate) conditions: &'a mut Conditions,
    publish: &'a Publish,
    requests: Requests,
}

/// Bounds of the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retention {
    /// Most events that are kept.
    pub(crate) events: u64,
    /// Greatest age of an event that is kept.
    pub(crate) age: Duration,
}

/// Requests to the engine itself.
#[derive(Default)]
pub(super) struct Requests {
    /// Other bounds of the journal.
    pub(super) retention: Option<Retention>,
    /// End the engine with this turn.
    pub(super) stop: bool,
    /// Cut the journal.
    pub(super) trim: bool,
    /// Compact the database, and tell this one.
    pub(super) compaction: Option<Compaction>,
}

/// The asker for a compaction: gets the size before and after, in bytes.
pub(super) type Compaction = oneshot::Sender<Result<(u64, u64), StoreError>>;

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
    tracing::info!(by_ms = %by, "the clock was set, or the machine slept: nothing is older by that");
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        core: pool::Turn<'a>,
        store: &'a Store,
        (waiting, conditions): (&'a mut Waiting, &'a mut Conditions),
        publish: &'a Publish,
    ) -> Self {
        Self { core, store, waiting, conditions, publish, requests: Requests::default() }
    }

    /// Ends the turn.
    pub(super) fn finish(self) -> (pool::Output, Requests) {
        (self.core.finish(), self.requests)
    }

    /// The ages of files now, for work outside of the turn.
    pub(crate) fn ages(&self) -> Ages {
        Ages { clock: self.pool().clock().clone(), now: self.now() }
    }

    /// Records a step of the wall clock, and moves the pauses that it would end or lengthen.
    pub(super) fn clock_stepped(&mut self, (clock, step): (Clock, ClockStep)) {
        log_step(step);
        let shifted: Vec<Event> = pool::budget::shifted(self.pool(), step).into_iter().collect();
        self.emit_all(shifted);
        let seq = self.pool().seq();
        self.emit(Event::ClockRead(Clock { seq, ..clock }));
    }

    /// Records both clocks as they are now: a later start of the daemon goes on from there.
    pub(crate) fn read_clock(&mut self) {
        let clock = pool::clock::refreshed(self.pool().clock(), self.pool().seq(), self.reading());
        self.emit(Event::ClockRead(clock));
    }

    pub(crate) fn reader(&self) -> Reader {
        self.store.reader()
    }

    /// A message as it is now, with its body.
    ///
    /// # Errors
    /// As [`Reader::message`].
    pub(crate) fn message(&self, id: MessageId) -> Result<Option<(Message, Vec<u8>)>, StoreError> {
        let mine = self.events().iter().find_map(|stamped| match &stamped.event {
            Event::MessageQueued(message) if message.id == id => Some((**message).clone()),
            _ => None,
        });
        let found = match mine {
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

    /// Has the journal cut after this turn.
    pub(crate) fn trim(&mut self) {
        self.requests.trim = true;
    }

    /// Sets the bounds of the journal.
    pub(crate) fn set_retention(&mut self, retention: Retention) {
        self.requests.retention = Some(retention);
    }

    /// Ends the engine with this turn.
    pub(crate) fn stop_engine(&mut self) {
        self.requests.stop = true;
    }

    /// Has the database compacted after this turn.
    pub(crate) fn compact(&mut self, answer: Compaction) {
        self.requests.compaction = Some(answer);
    }

    /// Events from now on. Those of this turn may come too: skip what the state shown already has.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Stamped> {
        self.publish.events.subscribe()
    }

    /// Observations of tmux from now on.
    pub(crate) fn subscribe_to_tmux(&self) -> broadcast::Receiver<Arc<Sighting>> {
        self.publish.observed.subscribe()
    }

    /// Publishes an observation of tmux.
    pub(crate) fn show(&self, sighting: &Sighting) {
        if self.publish.observed.receiver_count() > 0 {
            drop(self.publish.observed.send(Arc::new(sighting.clone())));
        }
    }

    /// Has those look again whom a change concerns, until nothing new comes of it.
    pub(super) fn look_again(&mut self, after: &mut Vec<After>) {
        loop {
            let changes = self.take_changes();
            let concerned = self.conditions.iter().filter(|(_, waiter)| changes.concern(waiter.session));
            let due: Vec<u64> = concerned.map(|(ticket, _)| *ticket).collect();
            if due.is_empty() {
                return;
            }
            for id in due {
                let Some(mut waiter) = self.conditions.remove(&id) else { continue };
                match (waiter.look)(self) {
                    Some(answer) => after.push(answer),
                    None => drop(self.conditions.insert(id, waiter)),
                }
            }
        }
    }
}
