//! The engine: one thread owns the pool and its store. It takes what waits, decides each piece and
//! applies it at once, commits all of it in one transaction, and only then answers and publishes.
//! After the first storage error nothing is answered any more and the process ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pool::Pool;
use pool::deadlines::Mono;
use pool::locks::{LockTable, Ticket};
use protocol::message::PROMPT;
use protocol::{Event, Message, MessageId, OpId, Reply, Seq, SessionId, Stamped, Timestamp, Token};
use store::{Reader, Store, StoreError};
use tokio::sync::{Notify, broadcast, oneshot, watch};

use crate::view::{Seen, View};
use crate::work::Work;

/// The most pieces of work of one turn: enough to share a commit, few enough to answer soon.
const BATCH: usize = 256;
/// How long a turn waits for those who came together last time, as a part of what a commit takes; and
/// at most. One client alone never waits.
const GATHER_PART: u32 = 4;
const GATHER_MAX: Duration = Duration::from_micros(500);
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
    pub(crate) pace: Pace,
}

/// How turns went lately.
#[derive(Default)]
pub(crate) struct Pace {
    /// Pieces of work that came together.
    together: usize,
    /// What a commit took.
    commit: Duration,
}

/// What the engine keeps beside the durable pool; dies with the process.
pub(crate) struct Rest {
    pub(crate) locks: LockTable,
    pub(crate) waiting: HashMap<Ticket, oneshot::Sender<Token>>,
    /// Operations under way: digest, and who waits for the answer.
    pub(crate) running: HashMap<OpId, (u64, Vec<oneshot::Sender<Reply>>)>,
    /// Who waits for something to come true.
    pub(crate) waiters: BTreeMap<u64, Waiter>,
    pub(crate) view: View,
    pub(crate) work: Work,
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

/// One batch of work under way.
pub(crate) struct Turn<'a> {
    pool: &'a mut Pool,
    store: &'a Store,
    pub(crate) rest: &'a mut Rest,
    publish: &'a Publish,
    now: Timestamp,
    mono: Mono,
    events: Vec<Stamped>,
    bodies: Vec<(MessageId, Vec<u8>)>,
    news: News,
    stirred: bool,
    /// Whether something has to be done at some time.
    sooner: bool,
    trimmed: bool,
    compaction: Option<Compaction>,
}

/// What changed since the waiters last looked.
#[derive(Default)]
struct News {
    stirred: bool,
    sessions: BTreeSet<SessionId>,
}

/// Who wants the database compacted: size before and after.
type Compaction = oneshot::Sender<Result<(u64, u64), StoreError>>;

impl Turn<'_> {
    pub(crate) fn pool(&self) -> &Pool {
        self.pool
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
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
        let stamped = Stamped { seq, at: self.now, event };
        self.pool.apply(&stamped);
        self.news.sessions.extend(stamped.event.session());
        self.sooner |= has_its_time(&stamped.event);
        if let Event::MessageChanged { id, status, .. } = &stamped.event {
            self.rest.work.moved(*id, status, self.mono);
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
    fn look_again(&mut self, after: &mut Vec<After>) {
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
        _ => false,
    }
}

impl Engine {
    /// Works until nobody is left who could send work, or the store fails.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let batch = self.pace.gather(first, jobs);
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

    fn turn(&mut self, batch: Vec<Job>) -> Result<(), StoreError> {
        let mut turn = Turn {
            pool: &mut self.pool,
            store: &self.store,
            rest: &mut self.rest,
            publish: &self.publish,
            now: crate::clock::now(),
            mono: crate::clock::mono(self.started),
            events: Vec::new(),
            bodies: Vec::new(),
            news: News::default(),
            stirred: false,
            sooner: false,
            trimmed: false,
            compaction: None,
        };
        let mut after: Vec<After> = batch.into_iter().map(|job| job(&mut turn)).collect();
        turn.look_again(&mut after);
        let Turn { events, bodies, stirred, sooner, trimmed, compaction, .. } = turn;
        self.write(&events, &bodies)?;
        if trimmed || events.iter().any(|s| s.event.is_journaled() && s.seq.0.is_multiple_of(TRIM_EVERY)) {
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
            return Ok(());
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
        let keep_for = protocol::time::millis(self.rest.keep_events_for);
        let oldest = Timestamp(crate::clock::now().0.saturating_sub(keep_for));
        crate::crash::point("journal-trim");
        self.store.trim_journal(self.rest.keep_events, oldest).map(drop)
    }
}

impl Pace {
    /// What waits; where several came together last time, they are waited for a moment: answered
    /// together, they send the next together too, and a commit for each alone would take far longer.
    fn gather(&mut self, first: Job, jobs: &mpsc::Receiver<Job>) -> Vec<Job> {
        let mut batch: Vec<Job> = std::iter::once(first).chain(jobs.try_iter()).take(BATCH).collect();
        let deadline = Instant::now() + (self.commit / GATHER_PART).min(GATHER_MAX);
        while batch.len() < self.together {
            let left = deadline.saturating_duration_since(Instant::now());
            match jobs.recv_timeout(left) {
                Ok(job) => {
                    let more = std::iter::once(job).chain(jobs.try_iter()).take(BATCH - batch.len());
                    batch.extend(more);
                }
                Err(_) => break,
            }
        }
        self.together = batch.len();
        batch
    }
}
