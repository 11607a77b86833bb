//! The engine thread: owns the pool and its store. It takes the work that waits, decides each piece and applies it at once,
//! commits all of it in one transaction, and only then answers and publishes. After the first storage error nothing is answered
//! any more and the process ends.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use pool::clock::Reading;
use pool::{Output, Pool, Volatile};
use protocol::{Event, MessageId, Seq, Stamped};
use store::{Store, StoreError};

use crate::engine::pace::Pace;
use crate::engine::publish::Publish;
use crate::engine::turn::{After, Conditions, Job, Retention, Turn};
use crate::engine::waiting::Waiting;
use crate::host::clock;

/// Time for which an observation may wait for a commit of something else.
const SEEN_LIMIT: Duration = Duration::from_secs(1);

/// Events between two trimmings of the journal.
const TRIM_EVERY: u64 = 4096;

/// The state that the engine thread owns.
pub(crate) struct Engine {
    pool: Pool,
    store: Store,
    volatile: Volatile,
    waiting: Waiting,
    conditions: Conditions,
    publish: Publish,
    retention: Retention,
    /// Observations that are not on disk yet.
    seen: Vec<Stamped>,
    /// When the last commit was.
    committed: Instant,
    /// When the daemon started: origin of its monotonic clock.
    started: Instant,
    /// The clocks at the last turn.
    reading: Reading,
    pace: Pace,
    /// True while the journal is longer than its retention.
    trim_on: bool,
    /// True once this turn is the last.
    stopping: bool,
}

impl Engine {
    /// `started` is the origin of the monotonic clock.
    pub(crate) fn new(
        (pool, store, volatile): (Pool, Store, Volatile),
        publish: Publish,
        retention: Retention,
        (reading, started): (Reading, Instant),
    ) -> Self {
        Self {
            pool,
            store,
            volatile,
            waiting: Waiting::default(),
            conditions: Conditions::default(),
            publish,
            retention,
            seen: Vec::new(),
            committed: started,
            started,
            reading,
            pace: Pace::default(),
            trim_on: false,
            stopping: false,
        }
    }

    /// Works until nobody is left who could send work, or the store fails. Answers the last event, where it ended in order.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) -> Option<Seq> {
        while let Some(first) = self.pace.next(jobs, self.committed) {
            let batch = self.pace.gather(first, jobs);
            if let Err(error) = self.turn(batch) {
                tracing::error!(%error, "the store failed; nothing more is answered");
                self.publish.failed.send_replace(Some(error.to_string()));
                return None;
            }
            if self.stopping {
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
        let reading = clock::read();
        let stepped = pool::clock::step(self.pool.clock(), self.reading, reading);
        self.reading = reading;
        let mono = clock::mono(self.started);
        let core = pool::Turn::new(&mut self.pool, &mut self.volatile, reading, mono);
        let waiting = (&mut self.waiting, &mut self.conditions);
        let mut turn = Turn::new(core, &self.store, waiting, &self.publish);
        if let Some(stepped) = stepped {
            turn.clock_stepped(stepped);
        }
        let mut after: Vec<After> = batch.into_iter().map(|job| job(&mut turn)).collect();
        turn.look_again(&mut after);
        let (Output { events, bodies, is_woken, has_deadline, .. }, requests) = turn.finish();
        self.retention = requests.retention.unwrap_or(self.retention);
        self.stopping |= requests.stop;
        self.write(&events, &bodies)?;
        if requests.trim
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
        if is_woken {
            self.publish.turns.send_modify(|n| *n += 1);
        }
        if has_deadline || self.volatile.workers.advance_tick() {
            self.publish.sooner.notify_one();
        }
        if let Some(answer) = requests.compaction {
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
        if only_seen && !waited && !self.stopping {
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
        let oldest = pool::clock::ago(self.pool.clock(), self.reading.wall, self.retention.age);
        crate::crash::point("journal-trim");
        let removed = self.store.trim_journal(self.retention.events, oldest)?;
        self.trim_on = removed >= store::TRIM_MAX;
        Ok(())
    }
}
