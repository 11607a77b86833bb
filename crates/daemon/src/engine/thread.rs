//! The engine thread: owns the pool and its store. It takes the waiting work, decides and applies each piece,
//! commits all of it in one transaction, and only then answers and publishes. After the first storage error
//! nothing is answered any more and the process ends.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use pool::clock::Reading;
use pool::{Output, Pool, Volatile};
use protocol::{Event, MessageId, Stamped};
use store::{Store, StoreError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::Instant;
use world::clock::Clock;

use crate::engine::batching::{BATCH_MAX, Batching};
use crate::engine::publish::Publisher;
use crate::engine::turn::{Completion, Conditions, JournalRetention, Turn, Work};
use crate::engine::waiters::Waiters;
use crate::host::timeline::GivenOut;
use crate::host::{clock, disk_reserve};

/// Maximum time for which an observation waits for a commit of other events.
const OBSERVATION_DELAY_MAX: Duration = Duration::from_secs(1);

/// Number of events between two trims of the journal.
const TRIM_EVERY: u64 = 4096;

/// Receives the numbers that are given out once the engine has ended cleanly.
pub(crate) type EngineEnd = oneshot::Receiver<Option<GivenOut>>;

/// The state that the engine thread owns.
pub(crate) struct Engine {
    pool: Pool,
    store: Store,
    volatile: Volatile,
    waiting: Waiters,
    conditions: Conditions,
    publish: Publisher,
    retention: JournalRetention,
    /// Observations not yet committed.
    uncommitted: Vec<Stamped>,
    /// Time of the last commit.
    committed_at: Instant,
    /// Start of the daemon, the origin of its monotonic clock.
    started: Instant,
    clock: Arc<dyn Clock>,
    /// The clocks at the last turn.
    reading: Reading,
    batching: Batching,
    /// Length of the database's file after the last commit.
    database_bytes: u64,
    /// True while the journal exceeds its bounds.
    is_trimming: bool,
    /// True once the current turn is the last one.
    stopping: bool,
}

impl Engine {
    /// Creates the engine; `started` is the origin of the monotonic clock.
    pub(crate) fn new(
        (pool, store, volatile): (Pool, Store, Volatile),
        publish: Publisher,
        retention: JournalRetention,
        (clock, reading, started): (Arc<dyn Clock>, Reading, Instant),
    ) -> Self {
        Self {
            pool,
            store,
            volatile,
            waiting: Waiters::default(),
            conditions: Conditions::default(),
            publish,
            retention,
            uncommitted: Vec::new(),
            committed_at: started,
            started,
            clock,
            reading,
            batching: Batching::default(),
            database_bytes: 0,
            is_trimming: false,
            stopping: false,
        }
    }

    /// Runs until the last sender of work is gone, an end is requested, or the store fails. Returns the
    /// numbers that are given out if it ended cleanly.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Work>) -> Option<GivenOut> {
        while let Some(first) = self.batching.next(jobs, self.committed_at.into_std()) {
            let batch = self.batching.gather(first, jobs);
            self.take(batch)?;
            if self.stopping {
                break;
            }
        }
        self.close()
    }

    /// Like [`Self::run`], as a task.
    pub(crate) async fn run_as_task(mut self, mut jobs: UnboundedReceiver<Work>) -> Option<GivenOut> {
        let mut batch = Vec::new();
        while jobs.recv_many(&mut batch, BATCH_MAX).await > 0 {
            self.take(std::mem::take(&mut batch))?;
            if self.stopping {
                break;
            }
        }
        self.close()
    }

    /// Runs a turn. `None` if the store failed.
    fn take(&mut self, batch: Vec<Work>) -> Option<()> {
        let Err(failed) = self.turn(batch) else { return Some(()) };
        tracing::error!(error = %failed, "the store failed; nothing more is answered");
        self.publish.failed.send_replace(Some(failed.to_string()));
        None
    }

    fn close(self) -> Option<GivenOut> {
        let given_out = (self.pool.next_session(), self.pool.seq().0);
        match disk_reserve::close(self.store) {
            Ok(()) => Some(given_out),
            Err(error) => {
                tracing::error!(%error, "the store did not close cleanly");
                None
            }
        }
    }

    fn turn(&mut self, batch: Vec<Work>) -> Result<(), StoreError> {
        let reading = clock::read(&*self.clock);
        let stepped = pool::clock::step(self.pool.clock(), self.reading, reading);
        self.reading = reading;
        let mono = clock::mono(self.started);
        let core = pool::Turn::new(&mut self.pool, &mut self.volatile, reading, mono);
        let waiting = (&mut self.waiting, &mut self.conditions);
        let mut turn = Turn::new(core, &self.store, waiting, &self.publish);
        if let Some(stepped) = stepped {
            turn.clock_stepped(stepped);
        }
        let mut after: Vec<Completion> = batch.into_iter().map(|job| job(&mut turn)).collect();
        turn.check_conditions(&mut after);
        turn.record_time_of_commit();
        let (Output { events, bodies, is_woken, has_deadline, .. }, requests) = turn.finish();
        self.retention = requests.retention.unwrap_or(self.retention);
        self.stopping |= requests.stop;
        self.write(&events, &bodies)?;
        if requests.trim
            || self.is_trimming
            || events.iter().any(|s| s.event.is_journaled() && s.seq.0.is_multiple_of(TRIM_EVERY))
        {
            self.trim()?;
        }
        crate::crash::point("commit-written");
        for stamped in events.into_iter().filter(|s| s.event.is_journaled()) {
            let (kind, session) = (stamped.event.kind().as_str(), stamped.event.session());
            tracing::debug!(seq = stamped.seq.0, kind, session = session.map(|id| id.0), "committed");
            if self.publish.events.receiver_count() > 0 {
                drop(self.publish.events.send(stamped));
            }
        }
        after.into_iter().for_each(|answer| answer());
        if is_woken {
            self.publish.turns.increment();
        }
        if has_deadline || self.volatile.workers.advance_tick() {
            self.publish.timer_changed.notify_one();
        }
        if let Some(answer) = requests.compaction {
            // The requester may be gone.
            drop(answer.send(self.store.compact()));
            self.note_length();
            self.store.check()?;
        }
        Ok(())
    }

    /// Commits the events, if any.
    fn write(&mut self, events: &[Stamped], bodies: &[(MessageId, Vec<u8>)]) -> Result<(), StoreError> {
        // Observations change often: they wait for the next commit of other events, at most
        // [`OBSERVATION_DELAY_MAX`].
        let only_observed = events.iter().all(|s| matches!(s.event, Event::SessionObserved { .. }));
        self.uncommitted.extend(events.iter().filter(|_| only_observed).cloned());
        let is_due = !self.uncommitted.is_empty() && self.committed_at.elapsed() >= OBSERVATION_DELAY_MAX;
        if only_observed && !is_due && !self.stopping {
            // A reader may have met a storage error: then nothing is answered any more.
            return self.store.check();
        }
        crate::crash::point("commit-begin");
        let began = Instant::now();
        if self.uncommitted.is_empty() {
            self.store.commit(&self.pool, events, bodies)?;
        } else {
            let mut all = std::mem::take(&mut self.uncommitted);
            all.extend(events.iter().filter(|_| !only_observed).cloned());
            self.store.commit(&self.pool, &all, bodies)?;
        }
        self.committed_at = Instant::now();
        self.batching.commit = began.elapsed();
        self.note_length();
        Ok(())
    }

    /// Signals a change of the database's length: a growing file uses up the space that is reserved behind its end, and
    /// a shrinking one gives it back.
    fn note_length(&mut self) {
        let before = std::mem::replace(&mut self.database_bytes, self.store.bytes());
        if before != self.database_bytes {
            self.publish.database_resized.notify_one();
        }
    }

    /// Trims the journal to its bounds.
    fn trim(&mut self) -> Result<(), StoreError> {
        let oldest = pool::clock::ago(self.pool.clock(), self.reading.wall, self.retention.age);
        crate::crash::point("journal-trim");
        let removed = self.store.trim_journal(self.retention.events, oldest)?;
        self.note_length();
        self.is_trimming = removed >= store::TRIM_MAX;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use protocol::OpId;

    use super::*;
    use crate::engine::tests::engine;

    #[test]
    fn what_is_reserved_for_the_database_outlives_its_close() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, database) = (engine(dir.path(), Publisher::new()), dir.path().join("pool.redb"));
        disk_reserve::preallocate(&database);
        let is_kept = || {
            let found = std::fs::metadata(&database).unwrap();
            found.blocks() * 512 >= found.len() + (7 << 20)
        };
        // Not every file system keeps anything.
        if is_kept() {
            engine.close().unwrap();
            assert!(is_kept());
        }
    }

    #[test]
    fn an_answer_is_not_later_than_the_last_reading_of_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = engine(dir.path(), Publisher::new());
        let op = OpId::Named("a".to_owned());
        let answered = op.clone();
        let work = move |turn: &mut Turn<'_>| -> Completion {
            let at = turn.now();
            turn.emit(Event::OperationDone { op: answered, digest: 1, reply: Vec::new(), at });
            Box::new(|| ())
        };
        engine.turn(vec![Box::new(work)]).unwrap();
        assert_eq!(engine.pool.operation(&op).unwrap().at, engine.pool.clock().read_at);
    }

    #[test]
    fn after_a_failed_read_of_the_store_a_turn_that_commits_nothing_is_not_answered_either() {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = engine(dir.path(), Publisher::new());
        assert!(engine.turn(Vec::new()).is_ok());
        engine.store.reader().fail();
        assert!(engine.turn(Vec::new()).is_err());
    }
}
