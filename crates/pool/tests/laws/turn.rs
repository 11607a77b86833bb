//! Decisions on both halves of the state, in a [`Turn`], as production makes them.

mod consequences;
mod evaluate;
mod grace;
pub(crate) mod hosts;
mod schedule;
mod shortage;
mod take_in;
mod usage_limit;
mod workers;

use std::time::Duration;

use pool::clock::Reading;
use pool::deadlines::Mono;
use pool::lock::LockTable;
use pool::observe::{Findings, ObserveOutcome, Observer, Report, Update};
use pool::slots::{RunIdentity, Tick, TickInputs};
use pool::{Settings, Turn, Volatile, observe, slots};
use protocol::session::SessionLock;
use protocol::tmux::TmuxState;
use protocol::{
    Epoch, Event, Lifecycle, OpId, PaneId, ProcId, Session, SessionId, Tag, Timestamp, TmuxSessionId, Token,
};

use crate::world::{World, pane, process, server, settings, up};

/// Time at which the clocks begin.
const START: u64 = 1_000_000;
const MINUTE: u64 = 60_000;

/// A pool with both halves of its state.
struct Engine {
    world: World,
    volatile: Volatile,
    settings: Settings,
    keep_stopped: Option<Duration>,
    restore_spacing: Option<Duration>,
    capacity: Option<usize>,
    /// True if the next tick follows samples that were taken for it.
    sampled: bool,
}

impl Engine {
    fn new() -> Self {
        Self {
            world: World { now: START, ..World::default() },
            volatile: Volatile::new(LockTable::new(Epoch(1)), Timestamp(START)),
            settings: settings(),
            keep_stopped: None,
            restore_spacing: None,
            capacity: Some(4),
            sampled: false,
        }
    }

    /// Sessions that run in panes of their own and can resume, by their numbers from 1.
    fn with_live(count: u32) -> Self {
        let mut engine = Self::new();
        engine.world.live("s1", server(1), 1);
        engine.change(ONE, |s| s.spec.resume_args = vec!["--resume".into()]);
        for n in 2..=count {
            let mut record = engine.session(ONE).clone();
            record.id = SessionId(n.into());
            record.name = format!("s{n}").parse().unwrap();
            record.workspace = record.name.clone();
            let run = record.incarnation.as_mut().unwrap();
            (run.tag, run.init) = (engine.world.tag(), Some(process(100 + n)));
            (run.session, run.pane) = (Some(TmuxSessionId(n)), Some(PaneId(n)));
            engine.world.emit(Event::SessionCreated(Box::new(record)));
        }
        let panes = (1..=count).map(|n| pane(&engine.world, SessionId(n.into()), n)).collect();
        engine.pass(1000);
        let seen = engine.see(up(1, panes), &[]);
        engine.world.emit_all(seen.events);
        engine
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.world.now)
    }

    fn pass(&mut self, ms: u64) {
        self.world.now += ms;
    }

    fn session(&self, id: SessionId) -> &Session {
        self.world.pool.session(id).unwrap()
    }

    fn tag(&self, id: SessionId) -> Tag {
        self.session(id).incarnation.as_ref().unwrap().tag
    }

    fn change(&mut self, id: SessionId, change: impl FnOnce(&mut Session)) {
        let mut record = self.session(id).clone();
        change(&mut record);
        self.world.emit(Event::SessionCreated(Box::new(record)));
    }

    fn is(&mut self, id: SessionId, lifecycle: Lifecycle, reason: protocol::Reason) {
        let now = self.now();
        self.change(id, |s| (s.lifecycle, s.reason, s.changed_at) = (lifecycle, Some(reason), now));
    }

    /// Decides in a turn. Returns the result and the events.
    fn turn<R>(&mut self, decide: impl FnOnce(&mut Turn<'_>, &Settings) -> R) -> (R, Vec<Event>) {
        let now = self.world.now;
        let reading = Reading { wall: Timestamp(now), awake_ms: now };
        let mut turn = Turn::new(&mut self.world.pool, &mut self.volatile, reading, Mono(now));
        let result = decide(&mut turn, &self.settings);
        (result, turn.finish().events.into_iter().map(|stamped| stamped.event).collect())
    }

    /// Takes in a whole observation that began now; its events are not applied.
    fn see(&mut self, state: TmuxState, exited: &[ProcId]) -> ObserveOutcome {
        self.see_from(state, Findings { exited: exited.iter().copied().collect(), ..Findings::default() })
    }

    fn see_from(&mut self, state: TmuxState, findings: Findings) -> ObserveOutcome {
        let update = self.update(state, Duration::ZERO);
        let (now, pool) = (Timestamp(self.world.now), &self.world.pool);
        observe::take_in(pool, &mut self.volatile, &update, &findings, now)
    }

    /// Applies a whole observation that began this long ago.
    fn update(&mut self, state: TmuxState, age: Duration) -> Update {
        let report = Report::Snapshot(state);
        let (update, _) = self.turn(|turn, _| {
            let began = turn.beginning(age);
            let (pool, volatile) = turn.state();
            volatile.observed.update(pool, (report, true), (Observer::Watcher(1), began))
        });
        update
    }

    /// Runs a tick of the scheduler.
    fn tick(&mut self) -> (Tick, Vec<Event>) {
        let (keep_stopped, restore_spacing) = (self.keep_stopped, self.restore_spacing);
        let (capacity, sampled, mut tags) = (self.capacity, self.sampled, self.world.tags);
        let mut identities = || {
            tags += 1;
            Some(RunIdentity { tag: Tag([tags; 16]), conversation: format!("talk{tags}") })
        };
        let ticked = self.turn(|turn, settings| {
            let identities = &mut identities;
            slots::tick(
                turn,
                TickInputs { settings, keep_stopped, restore_spacing, capacity, sampled, identities },
            )
        });
        self.world.tags = tags;
        ticked
    }

    /// A sample of silence: the program of the session with number `n` has written nothing since `since[n - 1]`.
    fn quiet(&mut self, since: &[u64]) {
        let since = (1..).zip(since).map(|(id, at)| (SessionId(id), Timestamp(*at))).collect();
        let now = self.now();
        self.volatile.scheduler.note_quiet(since, now);
    }

    /// A user's lock on a session.
    fn lock(&mut self, id: SessionId, prompts: &[protocol::MessageId]) {
        let token = self.volatile.locks.issue_token();
        let (op, purpose, since) = (OpId::Random([1; 16]), "deploy".to_owned(), self.now());
        let (holder, lease_ms, outer, prompts) = (None, MINUTE, None, prompts.iter().copied().collect());
        let lock = SessionLock { token, purpose, holder, lease_ms, since, op, prompts, outer };
        self.change(id, |s| s.lock = Some(lock));
        let (ticket, deadline) = (pool::lock::Ticket(token.n), Mono(self.world.now + MINUTE));
        let lock = pool::lock::UserLock { ticket, token, deadline, outer: None };
        self.volatile.user_locks.grant(id, lock);
    }
}

fn token(n: u64) -> Token {
    Token { epoch: Epoch(1), n }
}

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);
const THREE: SessionId = SessionId(3);
