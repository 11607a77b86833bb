//! The engine: one thread owns the pool and its store. It takes what waits, decides each piece and
//! applies it at once, commits all of it in one transaction, and only then answers and publishes.
//! After the first storage error nothing is answered any more and the process ends.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pool::Pool;
use pool::locks::{LockTable, Ticket};
use protocol::{Event, MessageId, OpId, Reply, Seq, Stamped, Timestamp, Token};
use store::Store;
use tokio::sync::{broadcast, oneshot, watch};

use crate::view::{Seen, View};

/// The most pieces of work of one turn: enough to share a commit, few enough to answer soon.
const BATCH: usize = 256;
/// Events that a subscriber may be behind before it is cut.
const SUBSCRIBER_BACKLOG: usize = 1024;

/// How long an observation may wait for a commit.
const SEEN_LIMIT: Duration = Duration::from_secs(1);
/// Events between two trimmings of the journal.
const TRIM_EVERY: u64 = 4096;

/// A piece of work: decides within the turn, answers after the commit.
pub(crate) type Job = Box<dyn FnOnce(&mut Turn<'_>) -> After + Send>;
/// What is left to do once the turn is on disk.
pub(crate) type After = Box<dyn FnOnce() + Send>;

/// What one thread owns.
pub(crate) struct Engine {
    pub(crate) pool: Pool,
    pub(crate) store: Store,
    pub(crate) rest: Rest,
    pub(crate) publish: Publish,
    /// Observations that are not on disk yet.
    pub(crate) seen: Vec<Stamped>,
    /// When the last commit was.
    pub(crate) committed: Instant,
}

/// What the engine keeps beside the durable pool; dies with the process.
pub(crate) struct Rest {
    pub(crate) locks: LockTable,
    pub(crate) waiting: HashMap<Ticket, oneshot::Sender<Token>>,
    /// Operations under way: digest, and who waits for the answer.
    pub(crate) running: HashMap<OpId, (u64, Vec<oneshot::Sender<Reply>>)>,
    pub(crate) view: View,
    /// Events that the journal keeps.
    pub(crate) keep_events: u64,
    /// Whether this turn is the last.
    pub(crate) stopping: bool,
}

/// How the rest of the daemon learns of commits.
#[derive(Clone)]
pub(crate) struct Publish {
    /// Journaled events in order.
    pub(crate) events: broadcast::Sender<Stamped>,
    /// Observations of tmux in order.
    pub(crate) observed: broadcast::Sender<Arc<Seen>>,
    /// Counts the turns after which something may have become true.
    pub(crate) turns: watch::Sender<u64>,
    /// Whether the store failed; the daemon then ends.
    pub(crate) failed: watch::Sender<Option<String>>,
}

impl Publish {
    pub(crate) fn new() -> Self {
        Self {
            events: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            observed: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            turns: watch::channel(0).0,
            failed: watch::channel(None).0,
        }
    }
}

/// One batch of work under way.
pub(crate) struct Turn<'a> {
    pool: &'a mut Pool,
    store: &'a Store,
    pub(crate) rest: &'a mut Rest,
    publish: &'a Publish,
    now: Timestamp,
    events: Vec<Stamped>,
    bodies: Vec<(MessageId, Vec<u8>)>,
    stirred: bool,
}

impl Turn<'_> {
    pub(crate) fn pool(&self) -> &Pool {
        self.pool
    }

    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Where the next journaled event will stand.
    pub(crate) fn next_seq(&self) -> Seq {
        Seq(self.pool.seq().0 + 1)
    }

    /// A fact: true from here on, on disk before anybody outside hears of it.
    pub(crate) fn emit(&mut self, event: Event) {
        let seq = if event.is_journaled() { self.next_seq() } else { self.pool.seq() };
        let stamped = Stamped { seq, at: self.now, event };
        self.pool.apply(&stamped);
        self.events.push(stamped);
    }

    pub(crate) fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.emit(event));
    }

    /// The body of a message that is queued in this turn.
    pub(crate) fn keep_body(&mut self, id: MessageId, body: Vec<u8>) {
        self.bodies.push((id, body));
    }

    /// Lets everybody who waits for something look again, though no event says so.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
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
}

impl Engine {
    /// Works until nobody is left who could send work, or the store fails.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let batch: Vec<Job> = std::iter::once(first).chain(jobs.try_iter()).take(BATCH).collect();
            if let Err(error) = self.turn(batch) {
                tracing::error!(%error, "the store failed; nothing more is answered");
                self.publish.failed.send_replace(Some(error.to_string()));
                return;
            }
            if self.rest.stopping {
                break;
            }
        }
        if let Err(error) = self.store.close() {
            tracing::error!(%error, "the store did not close cleanly");
        }
    }

    fn turn(&mut self, batch: Vec<Job>) -> Result<(), store::StoreError> {
        let mut turn = Turn {
            pool: &mut self.pool,
            store: &self.store,
            rest: &mut self.rest,
            publish: &self.publish,
            now: crate::clock::now(),
            events: Vec::new(),
            bodies: Vec::new(),
            stirred: false,
        };
        let after: Vec<After> = batch.into_iter().map(|job| job(&mut turn)).collect();
        let Turn { events, bodies, stirred, .. } = turn;
        // What changes often goes with whatever comes next, at most so long after.
        let only_seen = events.iter().all(|s| matches!(s.event, Event::SessionObserved { .. }));
        self.seen.extend(events.iter().filter(|_| only_seen).cloned());
        if !only_seen
            || (!self.seen.is_empty() && self.committed.elapsed() >= SEEN_LIMIT)
            || self.rest.stopping
        {
            let mut all = std::mem::take(&mut self.seen);
            all.extend(events.iter().filter(|_| !only_seen).cloned());
            self.store.commit(&self.pool, &all, &bodies)?;
            self.committed = Instant::now();
        }
        self.trim(&events)?;
        let stirred = stirred || !events.is_empty();
        for stamped in events.into_iter().filter(|s| s.event.is_journaled()) {
            tracing::debug!(seq = stamped.seq.0, kind = stamped.event.kind(), "committed");
            // Nobody subscribed is fine.
            drop(self.publish.events.send(stamped));
        }
        after.into_iter().for_each(|answer| answer());
        if stirred {
            self.publish.turns.send_modify(|n| *n += 1);
        }
        Ok(())
    }

    /// Cuts the journal now and then.
    fn trim(&mut self, events: &[Stamped]) -> Result<(), store::StoreError> {
        let due = |s: &Stamped| s.event.is_journaled() && s.seq.0.is_multiple_of(TRIM_EVERY);
        if events.iter().any(due) { self.store.trim_journal(self.rest.keep_events).map(drop) } else { Ok(()) }
    }
}
