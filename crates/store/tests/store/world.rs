//! Random but plausible histories, and what a store must know after each.

use std::collections::BTreeMap;

use pool::Pool;
use protocol::message::PROMPT;
use protocol::reap::{CandidateKind, Outcome};
use protocol::session::{DeleteMode, Size};
use protocol::{
    Epoch, Event, Exit, Incarnation, Lifecycle, Message, MessageId, MessageState, OpId, PaneId, ProcId,
    Reason, Seq, ServerId, Session, SessionId, Spec, Stamped, Tag, Timestamp, TmuxSessionId, Token,
};
use store::{Loaded, Store};

/// A small generator (splitmix64): the seed is the whole test case.
#[derive(Debug, Clone)]
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.index(from.len())]) }
    }
}

/// What a store must hold: the state, the bodies, the journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Expected {
    pub(crate) pool: Pool,
    pub(crate) bodies: BTreeMap<MessageId, Vec<u8>>,
    pub(crate) journal: Vec<Stamped>,
}

impl Expected {
    /// What a store that was just opened holds.
    pub(crate) fn found(store: &Store, loaded: Loaded) -> Self {
        assert_eq!(loaded.quarantined, [], "nothing is to be damaged");
        let ids: Vec<_> = loaded.pool.messages().map(|m| m.id).collect();
        let bodies = ids.into_iter().map(|id| (id, store.body(id).unwrap().expect("a body"))).collect();
        Self { pool: loaded.pool, bodies, journal: store.events_since(Seq(0), usize::MAX).unwrap() }
    }
}

/// One commit's worth of events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Stamped>,
    pub(crate) bodies: Vec<(MessageId, Vec<u8>)>,
}

/// A history in the making.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: Expected,
    pub(crate) clock: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng(seed), now: Expected::default(), clock: 1_700_000_000_000 }
    }

    /// Up to `most` steps more; the state has them already.
    pub(crate) fn batch(&mut self, most: u64) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..=self.rng.below(most) {
            let choice = self.rng.next();
            self.step(choice, &mut batch);
        }
        batch
    }

    /// What one number makes happen.
    pub(crate) fn step(&mut self, choice: u64, batch: &mut Batch) {
        self.clock += choice % 1000;
        let kind = choice / 1000 % 32;
        let event = match kind {
            0..=2 => Some(self.created()),
            3..=12 => self.session_change(kind),
            13..=18 => self.queued(batch),
            19..=24 => self.changed(),
            25 => self.now.pool.messages().next().map(|m| Event::MessageForgotten { id: m.id }),
            26..=28 => Some(self.operation(kind)),
            _ => Some(self.rare(choice / 1000 / 32)),
        };
        if let Some(event) = event {
            self.emit(event, batch);
        }
    }

    pub(crate) fn emit(&mut self, event: Event, batch: &mut Batch) {
        let seq = Seq(self.now.pool.seq().0 + u64::from(event.is_journaled()));
        let stamped = Stamped { seq, at: Timestamp(self.clock), event };
        self.now.pool.apply(&stamped);
        if stamped.event.is_journaled() {
            self.now.journal.push(stamped.clone());
        }
        let pool = &self.now.pool;
        self.now.bodies.retain(|id, _| pool.message(*id).is_some());
        batch.events.push(stamped);
    }

    fn tag(&mut self) -> Tag {
        let (a, b) = (self.rng.next().to_le_bytes(), self.rng.next().to_le_bytes());
        Tag([a, b].concat().try_into().unwrap())
    }

    fn incarnation(&mut self) -> Incarnation {
        let mut incarnation = Incarnation::intended(self.tag(), Timestamp(self.clock));
        incarnation.pane = Some(PaneId(7));
        incarnation.session = Some(TmuxSessionId(3));
        incarnation.init = Some(ProcId { pid: 4242, start: self.clock });
        incarnation
    }

    fn created(&mut self) -> Event {
        let n = self.now.pool.next_session();
        let size = Size { cols: 200, rows: 50 };
        let env = vec![("KEY".into(), "x".repeat(self.rng.index(300)).into())];
        let command = vec!["sleep".into(), "1000".into()];
        let incarnation = self.incarnation();
        Event::SessionCreated(Box::new(Session {
            id: SessionId(n),
            name: format!("w{n}").parse().unwrap(),
            workspace: format!("w{n}").parse().unwrap(),
            dir: format!("/pool/sessions/sess_{n}").into(),
            spec: Spec { agent: "shell".to_owned(), command, cwd: "/".into(), env, size },
            labels: BTreeMap::new(),
            lifecycle: Lifecycle::Starting,
            reason: None,
            detail: None,
            incarnation: Some(incarnation),
            incarnations: 1,
            restarts: 0,
            exit: None,
            total_requests: 0,
            recovered: false,
            created_at: Timestamp(self.clock),
            changed_at: Timestamp(self.clock),
            last_activity_at: Timestamp(self.clock),
            verified_at: None,
            current_command: None,
            attached_clients: 0,
        }))
    }

    fn session_change(&mut self, kind: u64) -> Option<Event> {
        let ids: Vec<_> = self.now.pool.sessions().map(|s| s.id).collect();
        let session = self.rng.pick(&ids)?;
        let exit = Some(Exit { code: Some(3), signal: None, at: Timestamp(self.clock) });
        let reason = Reason::Exited;
        let now = Timestamp(self.clock);
        let restarts = self.rng.next() as u32;
        Some(match kind {
            3 => {
                Event::SessionStarting { session, incarnation: self.incarnation(), incarnations: 2, restarts }
            }
            4 => Event::SessionLive {
                session,
                incarnation: self.incarnation(),
                recovered: restarts.is_multiple_of(2),
            },
            5 => Event::SessionRenamed { session, name: format!("n{}", self.rng.next()).parse().unwrap() },
            6 => Event::SessionLabelled { session, labels: [("a".to_owned(), now.0.to_string())].into() },
            7 => Event::SessionDraining { session, reason, exit: None, missing_since: Some(now) },
            8 => Event::SessionStopped { session, reason, exit },
            9 => Event::SessionLost { session, reason: Reason::ServerGone, exit: None },
            10 => Event::SessionObserved {
                session,
                at: now,
                dead: restarts.is_multiple_of(3),
                attached: restarts % 5,
                current_command: Some("vim".into()),
            },
            11 => {
                let tag = self.now.pool.session(session)?.incarnation.as_ref()?.tag;
                let process = ProcId { pid: restarts, start: now.0 };
                Event::AgentStarted { session, tag, init: process, agent: process }
            }
            _ if self.rng.below(3) == 0 => {
                Event::SessionDeleted { session, reason, mode: DeleteMode::KillTmux, tmux_alive: false }
            }
            _ => Event::SessionFailed { session, reason: Reason::Setup, detail: "no room".to_owned(), exit },
        })
    }

    fn queued(&mut self, batch: &mut Batch) -> Option<Event> {
        let ids: Vec<_> = self.now.pool.sessions().map(|s| s.id).collect();
        let session = self.rng.pick(&ids)?;
        let id = MessageId(self.now.pool.seq().0 + 1);
        let size = if self.rng.below(20) == 0 { 20_000 } else { self.rng.index(400) };
        let body: Vec<u8> = (0..size).map(|_| self.rng.next() as u8).collect();
        self.now.bodies.insert(id, body.clone());
        batch.bodies.push((id, body));
        Some(Event::MessageQueued(Box::new(Message {
            id,
            session,
            ordinal: self.now.pool.session(session)?.total_requests + 1,
            kind: PROMPT.to_owned(),
            key: Some(format!("key-{id}")),
            origin: "cli".to_owned(),
            size: u32::try_from(size).unwrap(),
            digest: self.rng.next(),
            enter: true,
            state: MessageState::Queued,
            attempts: 0,
            token: None,
            created_at: Timestamp(self.clock),
            expires_at: None,
            changed_at: Timestamp(self.clock),
            reason: None,
        })))
    }

    fn changed(&mut self) -> Option<Event> {
        let all: Vec<_> = self.now.pool.messages().map(|m| (m.id, m.session)).collect();
        let (id, session) = self.rng.pick(&all)?;
        let states = [MessageState::Typing, MessageState::Typed, MessageState::Done, MessageState::Queued];
        let state = self.rng.pick(&states)?;
        let token = Some(Token { epoch: self.now.pool.epoch(), n: self.rng.below(100) });
        let attempts = self.rng.below(5) as u32;
        Some(Event::MessageChanged { id, session, state, token, attempts, reason: Some("so".to_owned()) })
    }

    fn operation(&mut self, kind: u64) -> Event {
        let n = self.rng.below(12);
        let op =
            if n.is_multiple_of(2) { OpId::Named(format!("op-{n}")) } else { OpId::Random([n as u8; 16]) };
        let (digest, at) = (self.rng.next(), Timestamp(self.clock));
        match kind {
            26 => Event::OperationBegun { op, digest, session: SessionId(n), at },
            27 => Event::OperationDone { op, digest, reply: vec![9; self.rng.index(64)], at },
            _ => Event::OperationForgotten { op },
        }
    }

    fn rare(&mut self, choice: u64) -> Event {
        let (session, token) = (SessionId(1), Token { epoch: Epoch(1), n: 1 });
        let kind = CandidateKind::Requested;
        match choice % 8 {
            0 => Event::PoolStarted {
                epoch: Epoch(self.now.pool.epoch().0 + 1),
                build: "0.1.0".to_owned(),
                boot: format!("boot-{choice}"),
            },
            1 => Event::NextSession { next: self.now.pool.next_session() + 5 },
            2 => Event::TagRetired { tag: self.tag(), session },
            3 => Event::ReapStarted { session, kind, tag: self.tag(), token },
            4 => Event::ReapFinished {
                session,
                kind,
                tag: self.tag(),
                outcome: Outcome::Gone { killed: vec![] },
            },
            5 => Event::WatcherConnected { build: "0.1.0".to_owned() },
            6 => Event::WatcherLost { reason: "gone".to_owned() },
            _ => Event::TmuxServerChanged {
                server: (!choice.is_multiple_of(3))
                    .then_some(ServerId { process: ProcId { pid: 9, start: choice }, started_at: 5 }),
            },
        }
    }
}
