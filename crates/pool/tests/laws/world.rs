//! A pool under test with a minimal shell: the clock, tags, and a disk with its rows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pool::observe::{DiffScope, Observation, reconcile};
use pool::reap::{ReapInputs, find_candidates, is_to_end};
use pool::session::{CreateInputs, CreateOutcome};
use pool::{EnforceableLimits, Pool, QueueRules, ReapRules, RestartRules, Settings, session};
use protocol::policy::Naming;
use protocol::reap::Candidate;
use protocol::request::New;
use protocol::session::SessionLock;
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};
use protocol::{
    Breaker, Epoch, Event, Incarnation, Lifecycle, Message, MessageId, MessageStatus, OpId, PaneId, ProcId,
    Seq, ServerId, SessionId, Size, Stamped, Tag, Timestamp, TmuxSessionId, Token, WindowId,
};

pub(crate) fn settings() -> Settings {
    Settings {
        max_sessions: 4,
        naming: Naming::Numeric,
        size: Size { cols: 80, rows: 24 },
        sessions_dir: PathBuf::from("/state/sessions"),
        agents: BTreeMap::new(),
        queue: QueueRules::default(),
        grace_ms: 5000,
        umask: 0o022,
        env: Default::default(),
        adoption: pool::Adoption::Never,
        restart: RestartRules::default(),
        idle_timeout: None,
        idle_quiet: Duration::from_secs(2),
        idle_settle: Duration::from_secs(3),
        enforceable: EnforceableLimits::default(),
        reap: ReapRules::default(),
        typing_pause: Duration::from_secs(3),
        ready_limit: Duration::from_secs(30),
        max_processes: 10,
        workers: BTreeMap::new(),
    }
}

/// Inputs to a creation.
pub(crate) fn launch(tag: Tag, now: u64) -> CreateInputs<'static> {
    CreateInputs {
        tag,
        now: Timestamp(now),
        stamp: "20260101-000000",
        conversation: "talk",
        ahead: 0,
        tmux_names: &[],
    }
}

/// The rows of a store: each message as it was queued, with its last status, and the breakers.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) messages: BTreeMap<MessageId, (Message, Option<MessageStatus>)>,
    /// The number of each message's last change.
    changes: BTreeMap<MessageId, Seq>,
    pub(crate) breakers: BTreeMap<(SessionId, String), Breaker>,
}

impl Disk {
    fn keep(&mut self, event: &Event, seq: Seq) {
        match event {
            Event::MessageQueued(message) => {
                self.messages.insert(message.id, (message.as_ref().clone(), None));
            }
            Event::MessageChanged { id, status, .. } => {
                if let Some((_, last)) = self.messages.get_mut(id) {
                    *last = Some(status.as_ref().clone());
                    self.changes.insert(*id, seq);
                }
            }
            Event::MessageForgotten { id, .. } => {
                self.messages.remove(id);
            }
            Event::BreakerChanged { session, kind, breaker, .. } => {
                let key = (*session, kind.clone());
                if *breaker == Breaker::default() {
                    self.breakers.remove(&key);
                } else {
                    self.breakers.insert(key, breaker.clone());
                }
            }
            _ => {}
        }
    }

    /// The rows as events; each change of a message with its number.
    fn events(&self) -> Vec<(Option<Seq>, Event)> {
        let breakers = self.breakers.iter().map(|((session, kind), breaker)| Event::BreakerChanged {
            session: *session,
            kind: kind.clone(),
            breaker: breaker.clone(),
            turned: false,
        });
        let breakers = breakers.map(|event| (None, event));
        let messages = self.messages.values().flat_map(|(message, last)| {
            let (id, session) = (message.id, message.session);
            let seq = self.changes.get(&id).copied();
            let changed = last.iter().map(move |status| {
                (seq, Event::MessageChanged { id, session, status: Box::new(status.clone()) })
            });
            [(None, Event::MessageQueued(Box::new(message.clone())))].into_iter().chain(changed)
        });
        breakers.chain(messages).collect()
    }
}

/// A pool under test.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) pool: Pool,
    pub(crate) now: u64,
    pub(crate) tags: u8,
    pub(crate) disk: Disk,
    /// True while the next observation is the first one of a daemon.
    pub(crate) is_first: bool,
    /// Draining sessions that are being ended.
    pub(crate) drained: BTreeSet<SessionId>,
}

impl World {
    pub(crate) fn emit(&mut self, event: Event) -> Stamped {
        let seq = Seq(self.pool.seq().0 + u64::from(event.is_journaled()));
        self.disk.keep(&event, seq);
        let stamped = Stamped { seq, at: Timestamp(self.now), event };
        self.pool.apply(&stamped);
        stamped
    }

    pub(crate) fn emit_all(&mut self, events: Vec<Event>) -> Vec<Stamped> {
        events.into_iter().map(|e| self.emit(e)).collect()
    }

    /// The pool as a new daemon loads it from disk: messages by id, each with its last status.
    pub(crate) fn rebuilt(&self) -> Pool {
        let mut pool = Pool::default();
        let rows = self.pool.replicate().into_iter();
        let rows = rows.filter(|row| !matches!(row.event, Event::BreakerChanged { .. }));
        rows.for_each(|row| pool.apply(&row));
        let stamp = |(seq, event): (Option<Seq>, Event)| Stamped {
            seq: seq.unwrap_or(self.pool.seq()),
            at: Timestamp(0),
            event,
        };
        self.disk.events().into_iter().map(stamp).for_each(|row| pool.apply(&row));
        pool
    }

    pub(crate) fn tag(&mut self) -> Tag {
        self.tags += 1;
        Tag([self.tags; 16])
    }

    pub(crate) fn create(&mut self, name: &str) -> Option<SessionId> {
        let launch = launch(self.tag(), self.now);
        let asked = New { name: Some(name.to_owned()), command: vec!["cat".into()], ..New::default() };
        match session::create(&self.pool, &settings(), &asked, &launch) {
            Ok(CreateOutcome::Create(made)) => {
                self.emit_all(made.events);
                Some(made.session)
            }
            _ => None,
        }
    }

    pub(crate) fn live(&mut self, name: &str, server: ServerId, pane: u32) -> SessionId {
        let id = self.create(name).unwrap();
        let run = self.pool.session(id).unwrap().incarnation.clone().unwrap();
        let incarnation = Incarnation {
            server: Some(server),
            session: Some(TmuxSessionId(pane)),
            pane: Some(PaneId(pane)),
            init: Some(process(100 + pane)),
            ..run
        };
        self.emit(Event::SessionLive { session: id, incarnation, recovered: true });
        id
    }

    pub(crate) fn see(&mut self, state: &TmuxState, exited: &[ProcId]) -> Vec<Event> {
        self.see_all(state, exited, None)
    }

    pub(crate) fn see_only(&mut self, state: &TmuxState, only: Option<&DiffScope>) -> Vec<Event> {
        self.see_all(state, &[], only)
    }

    pub(crate) fn see_all(
        &mut self,
        state: &TmuxState,
        exited: &[ProcId],
        only: Option<&DiffScope>,
    ) -> Vec<Event> {
        let exited: BTreeSet<ProcId> = exited.iter().copied().collect();
        let later = Timestamp(self.now + 1);
        let seen = Observation {
            state,
            now: Timestamp(self.now),
            began: self.pool.moment(later, later),
            exited: &exited,
            exits: &BTreeMap::new(),
            first: self.is_first,
            drained: &self.drained,
            only,
        };
        let events = reconcile(&self.pool, &seen);
        self.emit_all(events.clone());
        events
    }

    pub(crate) fn lifecycle(&self, id: SessionId) -> Lifecycle {
        self.pool.session(id).unwrap().lifecycle
    }
}

/// Returns a user's lock with this token, of no known process.
pub(crate) fn session_lock(n: u64, since: Timestamp) -> SessionLock {
    SessionLock {
        token: Token { epoch: Epoch(1), n },
        purpose: "make".to_owned(),
        holder: None,
        lease_ms: 60_000,
        since,
        op: OpId::Random([1; 16]),
        prompts: BTreeSet::new(),
        outer: None,
    }
}

/// Returns the number of cases of a law: so few for every run, and more if `POOL_CASES` asks for them.
#[expect(clippy::disallowed_methods, reason = "how long a test runs is asked of it from outside")]
pub(crate) fn cases(few: u32) -> u32 {
    std::env::var("POOL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

pub(crate) fn process(pid: u32) -> ProcId {
    ProcId { pid, start: u64::from(pid) * 10 }
}

pub(crate) fn server(n: u32) -> ServerId {
    ServerId { process: process(n), started_at: u64::from(n) }
}

pub(crate) fn pane(world: &World, id: SessionId, n: u32) -> (PaneId, TmuxPane) {
    let tag = world.pool.session(id).unwrap().incarnation.as_ref().unwrap().tag;
    let bare = TmuxPane::bare(TmuxSessionId(n), WindowId(n), 100 + n);
    let pane = TmuxPane { tag: Some(tag), process: Some(process(100 + n)), ..bare };
    (PaneId(n), pane)
}

pub(crate) fn up(n: u32, panes: Vec<(PaneId, TmuxPane)>) -> TmuxState {
    let session = |pane: &TmuxPane| {
        (pane.session, TmuxSession { pooled: true, ..TmuxSession::bare(format!("S{}", pane.session.0), 1) })
    };
    let sessions = panes.iter().map(|(_, pane)| session(pane)).collect();
    TmuxState { server: Server::Up(server(n)), sessions, panes: panes.into_iter().collect() }
}

/// The candidates to end, without those that are only to be reported.
pub(crate) fn candidates(pool: &Pool, settings: &Settings, inputs: &ReapInputs<'_>) -> Vec<Candidate> {
    let mut found = find_candidates(pool, settings, inputs);
    found.retain(|candidate| is_to_end(pool, settings, candidate));
    found
}
