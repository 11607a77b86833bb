//! The engine: one thread owns the pool and its store. It takes what waits, decides each piece and
//! applies it at once, commits all of it in one transaction, and only then answers and publishes.
//! After the first storage error nothing is answered any more and the process ends.

mod pace;
mod turn;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pool::Pool;
use pool::clock::Reading;
use pool::locks::{LockTable, Ticket};
use protocol::{Event, MessageId, OpId, Reply, Seq, SessionId, Stamped};
use store::{Store, StoreError};
use tokio::sync::{Notify, broadcast, oneshot, watch};

use crate::locking::{UserLock, Waits};
use crate::slots::Line;
use crate::stale::Stale;
use crate::view::{Seen, View};
use crate::work::Work;

pub(crate) use pace::Pace;
use turn::News;
pub(crate) use turn::{Turn, log_step};

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
/// Looks whether it has come true, and then what is left to do.
pub(crate) type Look = Box<dyn FnMut(&mut Turn<'_>) -> Option<After> + Send>;

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
    /// When the daemon started, for its monotonic clock.
    pub(crate) started: Instant,
    /// The clocks at the last turn.
    pub(crate) reading: Reading,
    pub(crate) pace: Pace,
    /// Whether the journal is still longer than it is to be.
    pub(crate) trim_on: bool,
}

/// What the engine keeps beside the durable pool; dies with the process.
pub(crate) struct Rest {
    pub(crate) locks: LockTable,
    pub(crate) waiting: HashMap<Ticket, Waits>,
    /// Locks that users hold.
    pub(crate) user_locks: BTreeMap<SessionId, UserLock>,
    /// Operations under way: digest, and who waits for the answer.
    pub(crate) running: HashMap<OpId, (u64, Vec<oneshot::Sender<Reply>>)>,
    /// Who waits for something to come true.
    pub(crate) waiters: BTreeMap<u64, Waiter>,
    pub(crate) view: View,
    pub(crate) work: Work,
    pub(crate) stale: Stale,
    pub(crate) agents: crate::hooks::Agents,
    /// Who waits for a slot.
    pub(crate) line: Line,
    /// Events that the journal keeps, and for how long.
    pub(crate) keep_events: u64,
    pub(crate) keep_events_for: Duration,
    /// Whether this turn is the last.
    pub(crate) stopping: bool,
}

/// Waits for something to come true.
pub(crate) struct Waiter {
    /// Looks again only after something of this session changed, messages included; else after anything
    /// but messages did.
    pub(crate) session: Option<SessionId>,
    pub(crate) look: Look,
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
    /// Something is to be done at an earlier time than before.
    pub(crate) sooner: Arc<Notify>,
}

impl Publish {
    pub(crate) fn new() -> Self {
        Self {
            events: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            observed: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            turns: watch::channel(0).0,
            failed: watch::channel(None).0,
            sooner: Arc::default(),
        }
    }
}

impl Engine {
    /// Works until nobody is left who could send work, or the store fails. Answers the last event, where it ended in order.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) -> Option<Seq> {
        while let Some(first) = self.pace.next(jobs, self.committed) {
            let batch = self.pace.gather(first, jobs);
            if let Err(error) = self.turn(batch) {
                tracing::error!(%error, "the store failed; nothing more is answered");
                self.publish.failed.send_replace(Some(error.to_string()));
                return None;
            }
            if self.rest.stopping {
                break;
            }
        }
        let last = self.pool.seq();
        match self.store.close() {
            Ok(()) => Some(last),
            Err(error) => {
                tracing::error!(%error, "the store did not close cleanly");
                None
            }
        }
    }

    fn turn(&mut self, batch: Vec<Job>) -> Result<(), StoreError> {
        let reading = crate::clock::read();
        let stepped = pool::clock::step(self.pool.clock(), self.reading, reading);
        self.reading = reading;
        let mut turn = Turn {
            pool: &mut self.pool,
            store: &self.store,
            rest: &mut self.rest,
            publish: &self.publish,
            reading,
            mono: crate::clock::mono(self.started),
            events: Vec::new(),
            bodies: Vec::new(),
            news: News::default(),
            stirred: false,
            sooner: false,
            trimmed: false,
            compaction: None,
        };
        if let Some(stepped) = stepped {
            turn.clock_stepped(stepped);
        }
        let mut after: Vec<After> = batch.into_iter().map(|job| job(&mut turn)).collect();
        turn.look_again(&mut after);
        let Turn { events, bodies, stirred, sooner, trimmed, compaction, .. } = turn;
        self.write(&events, &bodies)?;
        if trimmed
            || self.trim_on
            || events.iter().any(|s| s.event.is_journaled() && s.seq.0.is_multiple_of(TRIM_EVERY))
        {
            self.trim()?;
        }
        crate::crash::point("commit-written");
        for stamped in events.into_iter().filter(|s| s.event.is_journaled()) {
            tracing::debug!(seq = stamped.seq.0, kind = stamped.event.kind(), "committed");
            if self.publish.events.receiver_count() > 0 {
                drop(self.publish.events.send(stamped));
            }
        }
        after.into_iter().for_each(|answer| answer());
        if stirred {
            self.publish.turns.send_modify(|n| *n += 1);
        }
        if sooner || self.rest.work.is_sooner() {
            self.publish.sooner.notify_one();
        }
        if let Some(answer) = compaction {
            // Whoever asked may have left.
            drop(answer.send(self.store.compact()));
            self.store.check()?;
        }
        Ok(())
    }

    /// One commit, where there is something to commit.
    fn write(&mut self, events: &[Stamped], bodies: &[(MessageId, Vec<u8>)]) -> Result<(), StoreError> {
        // What changes often goes with whatever comes next, at most so long after.
        let only_seen = events.iter().all(|s| matches!(s.event, Event::SessionObserved { .. }));
        self.seen.extend(events.iter().filter(|_| only_seen).cloned());
        let waited = !self.seen.is_empty() && self.committed.elapsed() >= SEEN_LIMIT;
        if only_seen && !waited && !self.rest.stopping {
            // A reader may have met a failure: then nothing is answered any more.
            return self.store.check();
        }
        crate::crash::point("commit-begin");
        let began = Instant::now();
        if self.seen.is_empty() {
            self.store.commit(&self.pool, events, bodies)?;
        } else {
            let mut all = std::mem::take(&mut self.seen);
            all.extend(events.iter().filter(|_| !only_seen).cloned());
            self.store.commit(&self.pool, &all, bodies)?;
        }
        self.committed = Instant::now();
        self.pace.commit = began.elapsed();
        Ok(())
    }

    /// Cuts the journal to what is kept.
    fn trim(&mut self) -> Result<(), StoreError> {
        let oldest = pool::clock::ago(self.pool.clock(), self.reading.wall, self.rest.keep_events_for);
        crate::crash::point("journal-trim");
        let removed = self.store.trim_journal(self.rest.keep_events, oldest)?;
        self.trim_on = removed >= store::TRIM_MAX;
        Ok(())
    }
}
