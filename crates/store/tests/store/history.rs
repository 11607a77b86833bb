//! Random but plausible histories of a pool, and the content that a store must have after each.

mod agents;

use std::collections::BTreeMap;

use pool::Pool;
use protocol::clock::{Clock, ClockStep};
use protocol::message::STEPS_MAX;
use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::reap::{Action, CandidateKind, Outcome, Rule};
use protocol::session::{Conversation, DeleteMode, SessionLock};
use protocol::usage::Account;
use protocol::{
    Breaker, Epoch, Event, Exit, GeneratorId, Holder, Incarnation, Limits, Message, MessageId, MessageState,
    MessageStatus, Name, OpId, OsBytes, PROMPT, PaneId, ProcId, Reason, Seq, ServerId, Session, SessionId,
    Size, Spec, Stamped, Tag, Timestamp, TmuxSessionId, Token,
};
use store::{Loaded, Store, StoreError};

use crate::backend::Disk;
use crate::rng::Rng;

/// Returns the journal's copy of an event, without a session's environment.
fn journaled(stamped: &Stamped) -> Stamped {
    let mut kept = stamped.clone();
    if let Event::SessionCreated(_) = kept.event {
        pool::redaction::event(&mut kept.event);
    }
    kept
}

/// The content that a store must have: the state, the messages with their bodies, the journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Expected {
    pub(crate) pool: Pool,
    pub(crate) messages: BTreeMap<MessageId, (Message, Vec<u8>)>,
    pub(crate) journal: Vec<Stamped>,
}

impl Expected {
    /// Returns the content of a store that was just opened.
    pub(crate) fn found(store: &Store, loaded: Loaded) -> Self {
        assert_eq!(loaded.quarantined, [], "nothing is damaged");
        let mut messages = BTreeMap::new();
        let each = |message: Message, body: &[u8]| {
            messages.insert(message.id, (message, body.to_vec()));
            true
        };
        store.each_message(MessageId(0), each).unwrap();
        Self { pool: loaded.pool, messages, journal: store.events_since(Seq(0), usize::MAX).unwrap() }
    }

    /// Applies an event to the messages.
    fn apply(&mut self, stamped: &Stamped, bodies: &[(MessageId, Vec<u8>)]) {
        match &stamped.event {
            Event::MessageQueued(queued) => {
                let mut message = (**queued).clone();
                message.status.changed_at = message.created_at;
                message.steps = vec![message.status.step()];
                let body = bodies.iter().find(|(id, _)| *id == message.id).unwrap().1.clone();
                self.messages.insert(message.id, (message, body));
            }
            Event::MessageChanged { id, status, .. } => {
                if let Some((message, _)) = self.messages.get_mut(id) {
                    message.status = (**status).clone();
                    message.steps.push(status.step());
                    if message.steps.len() > STEPS_MAX {
                        message.steps.remove(1);
                    }
                }
            }
            Event::MessageForgotten { id, .. } => drop(self.messages.remove(id)),
            _ => {}
        }
    }
}

/// The events of one commit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Stamped>,
    pub(crate) bodies: Vec<(MessageId, Vec<u8>)>,
}

/// A history under construction.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) rng: Rng,
    pub(crate) now: Expected,
    pub(crate) clock: u64,
    /// The steps since the last commit, which are already applied to the state.
    pub(crate) batch: Batch,
}

/// Returns an empty disk, the store on it, and a history for it.
pub(crate) fn fresh(seed: u64) -> (Disk, Store, History) {
    let disk = Disk::default();
    let store = Store::with_backend(disk.clone()).unwrap().0;
    (disk, store, History::new(seed))
}

impl History {
    pub(crate) fn new(seed: u64) -> Self {
        let (now, batch) = Default::default();
        Self { rng: Rng(seed), now, clock: 1_700_000_000_000, batch }
    }

    /// Takes up to `most` further steps.
    pub(crate) fn steps(&mut self, most: u64) {
        for _ in 0..=self.rng.below(most) {
            let choice = self.rng.next();
            self.step(choice);
        }
    }

    /// Commits the steps since the last commit.
    pub(crate) fn commit(&mut self, store: &mut Store) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        store.commit(&self.now.pool, &batch.events, &batch.bodies)
    }

    /// Takes the step that a number stands for.
    pub(crate) fn step(&mut self, choice: u64) {
        self.clock += choice % 1000;
        let kind = choice / 1000 % 48;
        let event = match kind {
            0..=2 => Some(self.created()),
            3..=10 => self.session_change(kind),
            11..=16 => self.queued(),
            17..=23 => self.message_change(),
            24..=25 => self.forgotten(),
            26..=27 => self.breaker(),
            28..=29 => Some(self.operation()),
            30..=31 => Some(self.rare(choice / 1000 / 48)),
            32..=39 => self.policy_change(kind),
            40..=43 => self.lock_change(kind),
            _ => self.agent(kind),
        };
        if let Some(event) = event {
            self.emit(event);
        }
    }

    pub(crate) fn create(&mut self) -> SessionId {
        self.step(0);
        self.now.pool.sessions().last().unwrap().id
    }

    /// Queues a message for any session.
    pub(crate) fn send(&mut self) -> MessageId {
        self.step(11_000);
        *self.now.messages.keys().next_back().unwrap()
    }

    pub(crate) fn change_state(&mut self, id: MessageId, state: MessageState) {
        let session = self.now.messages[&id].0.session;
        let changed_at = Timestamp(self.clock);
        let status = Box::new(MessageStatus { state, attempts: 1, changed_at, ..Default::default() });
        self.emit(Event::MessageChanged { id, session, status });
    }

    /// Replaces the body of a message of this batch.
    pub(crate) fn set_body(&mut self, id: MessageId, body: Vec<u8>) {
        let (_, kept) = self.batch.bodies.iter_mut().find(|(of, _)| *of == id).unwrap();
        kept.clone_from(&body);
        self.now.messages.get_mut(&id).unwrap().1 = body;
    }

    pub(crate) fn forget(&mut self, id: MessageId) {
        let session = self.now.messages[&id].0.session;
        self.emit(Event::MessageForgotten { id, session });
    }

    pub(crate) fn emit(&mut self, event: Event) {
        let seq = Seq(self.now.pool.seq().0 + u64::from(event.is_journaled()));
        let stamped = Stamped { seq, at: Timestamp(self.clock), event };
        self.now.pool.apply(&stamped);
        self.now.apply(&stamped, &self.batch.bodies);
        if stamped.event.is_journaled() {
            self.now.journal.push(journaled(&stamped));
        }
        self.batch.events.push(stamped);
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
        if self.rng.below(2) == 0 {
            incarnation.cgroup = Some(OsBytes(vec![b'/', 0xff]));
            incarnation.unenforced = vec!["cpu: there is no control group".to_owned()];
            incarnation.resumed = true;
        }
        incarnation
    }

    fn created(&mut self) -> Event {
        let n = self.now.pool.next_session();
        let size = Size { cols: 200, rows: 50 };
        let env = vec![("KEY".into(), "x".repeat(self.rng.index(300)).into())];
        let command = vec!["sleep".into(), "1000".into()];
        let incarnation = self.incarnation();
        let bounded = self.rng.below(2) == 0;
        let args = |text: &str| if bounded { vec!["--resume".into(), text.into()] } else { vec![] };
        let spec = Spec {
            agent: "shell".to_owned(),
            command,
            cwd: "/".into(),
            env,
            size,
            start_args: args("{conversation}"),
            resume_args: args("again"),
            limits: if bounded { "mem=2G,nice=5,cpus=0-3".parse().unwrap() } else { Limits::default() },
            context_limit: bounded.then_some(200_000),
            separate_stderr: bounded,
        };
        let name: Name = format!("w{n}").parse().unwrap();
        let dir = format!("/pool/sessions/sess_{n}").into();
        let names = (name.clone(), name);
        Event::SessionCreated(Box::new(Session::intended(SessionId(n), names, dir, spec, incarnation)))
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
            7 => match restarts % 3 {
                0 => Event::SessionDraining { session, reason, exit: None, missing_since: Some(now) },
                1 => Event::SessionStopped { session, reason, exit },
                _ => Event::SessionLost { session, reason: Reason::ServerGone, exit: None },
            },
            8 => Event::SessionObserved {
                session,
                at: now,
                dead: restarts.is_multiple_of(3),
                attached: restarts % 5,
                // A program's name need not be UTF-8.
                current_command: Some(OsBytes(vec![b'v', restarts as u8])),
            },
            9 => {
                let run = self.now.pool.session(session)?.incarnation.clone()?;
                let process = Some(ProcId { pid: restarts, start: now.0 });
                let incarnation = Incarnation { init: process, agent: process, ..run };
                Event::SessionPlaced { session, incarnation }
            }
            _ if self.rng.below(3) == 0 => {
                let its = self.now.messages.values().filter(|(m, _)| m.session == session);
                let its: Vec<_> = its.map(|(m, _)| m.id).collect();
                its.into_iter().for_each(|id| self.forget(id));
                Event::SessionDeleted { session, reason, mode: DeleteMode::KillTmux, tmux_alive: false }
            }
            _ => Event::SessionFailed { session, reason: Reason::Setup, detail: "no room".to_owned(), exit },
        })
    }

    /// Changes policy, budget, conversation or usage of a session.
    fn policy_change(&mut self, kind: u64) -> Option<Event> {
        let ids: Vec<_> = self.now.pool.sessions().map(|s| s.id).collect();
        let session = self.rng.pick(&ids)?;
        let (n, now) = (self.rng.below(1 << 40), Timestamp(self.clock));
        let yes = n.is_multiple_of(2);
        Some(match kind {
            32 => {
                let reason = [Reason::Evicted, Reason::Idle, Reason::Parked][self.rng.index(3)];
                let exit = yes.then_some(Exit { code: None, signal: Some(15), at: now });
                Event::SessionParked { session, reason, exit }
            }
            33 => {
                let restart = [RestartPolicy::No, RestartPolicy::OnFailure, RestartPolicy::Always];
                let policy = Policy {
                    restart: restart[self.rng.index(3)],
                    max_restarts: yes.then_some(n as u32),
                    ttl_ms: (!yes).then_some(n),
                    pinned: yes,
                    reap: self.rules(),
                    ..Policy::default()
                };
                Event::SessionPolicyChanged { session, policy }
            }
            34..=35 => {
                let starts = (0..n % 4).map(|ago| Timestamp(self.clock - ago)).collect();
                let budget =
                    Budget { starts, failures: n as u32, due_at: yes.then_some(now), exhausted: !yes };
                Event::BudgetChanged { session, budget }
            }
            36 => {
                let conversation = Conversation { id: format!("{n:032x}"), begun: n.is_multiple_of(3) };
                Event::ConversationChanged { session, conversation: yes.then_some(conversation) }
            }
            37 => {
                let oom_kills = yes.then_some(n % 3);
                let account = Account { user_us: n, system_us: n / 2, max_rss_kib: n / 3, oom_kills };
                Event::SessionAccounted(session, account)
            }
            38 => {
                let limit = "memory".to_owned();
                Event::LimitExceeded { session, limit, used: n, allowed: n / 2, ended: yes }
            }
            _ => Event::LogResumed { session },
        })
    }

    fn rules(&mut self) -> BTreeMap<Rule, Action> {
        let all = Rule::ALL.into_iter().filter(|rule| rule.applies_to_session() && self.rng.below(4) == 0);
        let all: Vec<_> = all.collect();
        all.into_iter().map(|rule| (rule, Action::ALL[self.rng.index(4)])).collect()
    }

    /// Changes the lock of a session, or finds it stale.
    fn lock_change(&mut self, kind: u64) -> Option<Event> {
        let ids: Vec<_> = self.now.pool.sessions().map(|s| s.id).collect();
        let session = self.rng.pick(&ids)?;
        let n = self.rng.below(1 << 20);
        let yes = n.is_multiple_of(2);
        let held = self.now.pool.session(session)?.lock.as_ref().map(|lock| lock.token);
        // Sometimes the token of an earlier lock.
        let token =
            held.filter(|_| !n.is_multiple_of(5)).unwrap_or(Token { epoch: self.now.pool.epoch(), n });
        Some(match kind {
            40..=41 => {
                let lock = SessionLock {
                    token: Token { epoch: self.now.pool.epoch(), n },
                    purpose: format!("make -j{n}"),
                    holder: yes.then_some(ProcId { pid: n as u32, start: self.clock }),
                    lease_ms: n,
                    since: Timestamp(self.clock),
                    op: if yes { OpId::Random([n as u8; 16]) } else { OpId::Named(format!("lock-{n}")) },
                    prompts: Default::default(),
                    outer: yes.then(|| Token { epoch: self.now.pool.epoch(), n: n + 1 }),
                };
                Event::LockGranted { session, lock }
            }
            42 if yes => Event::LockReleased { session, token, reason: "given back".to_owned() },
            42 if n.is_multiple_of(3) => Event::LockUsedForSend { session, token, message: MessageId(n) },
            42 => Event::LockRevoked { session, token, reason: "its holder was silent".to_owned() },
            _ => {
                let (rule, action) = (Rule::ALL[self.rng.index(11)], Action::ALL[self.rng.index(4)]);
                Event::StaleFound { session, rule, action, evidence: format!("silent for {n} s") }
            }
        })
    }

    fn queued(&mut self) -> Option<Event> {
        let ids: Vec<_> = self.now.pool.sessions().map(|s| s.id).collect();
        let session = self.rng.pick(&ids)?;
        let id = MessageId(self.now.pool.seq().0 + 1);
        let size = if self.rng.below(20) == 0 { 20_000 } else { self.rng.index(400) };
        let body: Vec<u8> = (0..size).map(|_| self.rng.next() as u8).collect();
        self.batch.bodies.push((id, body));
        let kinds = [PROMPT, "observation", "summarize"];
        let ops = [None, Some(OpId::Named(format!("send-{id}"))), Some(OpId::Random([id.0 as u8; 16]))];
        let n = self.rng.below(100);
        let expires = n.is_multiple_of(3);
        Some(Event::MessageQueued(Box::new(Message {
            id,
            session,
            ordinal: self.now.pool.session(session)?.total_requests + 1,
            kind: self.rng.pick(&kinds)?.to_owned(),
            key: n.is_multiple_of(2).then(|| format!("key-{id}")),
            op: ops[self.rng.index(3)].clone(),
            origin: "cli".to_owned(),
            cause: n.is_multiple_of(5).then_some(MessageId(n)),
            hops: (n % 16) as u8,
            priority: n as i8 % 3 - 1,
            size: u32::try_from(size).unwrap(),
            digest: self.rng.next(),
            enter: true,
            max_attempts: 5,
            created_at: Timestamp(self.clock),
            expires_at: expires.then(|| Timestamp(self.clock + 60_000)),
            in_doubt: None,
            status: MessageStatus::default(),
            steps: Vec::new(),
            deadline_at: None,
        })))
    }

    /// Claims, retries or ends a message.
    fn message_change(&mut self) -> Option<Event> {
        let all: Vec<_> = self.now.messages.values().map(|(m, _)| (m.id, m.session)).collect();
        let (id, session) = self.rng.pick(&all)?;
        let now = Timestamp(self.clock);
        let n = self.rng.below(100);
        let token = Token { epoch: self.now.pool.epoch(), n };
        let attempts = self.now.messages[&id].0.status.attempts;
        let status = MessageStatus { attempts, changed_at: now, ..Default::default() };
        let holder = Holder {
            generator: Some(GeneratorId(n)),
            process: Some(ProcId { pid: 7, start: n }),
            lease_ms: 60_000,
            op: n.is_multiple_of(2).then(|| OpId::Named(format!("claim-{n}"))),
            host: None,
        };
        let (state, attempts) = (MessageState::Claimed, attempts + 1);
        let claimed =
            MessageStatus { state, attempts, token: Some(token), holder: Some(holder), ..status.clone() };
        let pause = Some(Timestamp(self.clock + 1000));
        let reason = Some("exit status 3".into());
        let result = Some(OsBytes(vec![n as u8; 9]));
        let status = match n % 8 {
            0..=2 => claimed,
            3 => MessageStatus { not_before: pause, reason, ..status },
            4 => MessageStatus { state: MessageState::Done, result, ..status },
            5 => MessageStatus { state: MessageState::Dead, reason, ..status },
            6 => MessageStatus { state: MessageState::Typing, token: Some(token), ..status },
            _ => MessageStatus { state: MessageState::Revoking, ..claimed },
        };
        Some(Event::MessageChanged { id, session, status: Box::new(status) })
    }

    fn forgotten(&mut self) -> Option<Event> {
        let all: Vec<_> = self.now.messages.values().map(|(m, _)| (m.id, m.session)).collect();
        let (id, session) = self.rng.pick(&all)?;
        Some(Event::MessageForgotten { id, session })
    }

    fn breaker(&mut self) -> Option<Event> {
        let ids: Vec<_> = self.now.pool.sessions().map(|s| s.id).collect();
        let session = self.rng.pick(&ids)?;
        let failures = self.rng.below(5) as u32;
        let opened_at = (failures > 2).then_some(Timestamp(self.clock));
        let reason = (failures > 0).then(|| "exit status 1".to_owned());
        let breaker = Breaker { failures, opened_at, probe_at: opened_at, reason };
        let kind = ["observation", "summarize"][self.rng.index(2)].to_owned();
        Some(Event::BreakerChanged { session, kind, turned: breaker.is_open(), breaker })
    }

    fn operation(&mut self) -> Event {
        let n = self.rng.below(12);
        let op =
            if n.is_multiple_of(2) { OpId::Named(format!("op-{n}")) } else { OpId::Random([n as u8; 16]) };
        let (digest, at) = (self.rng.next(), Timestamp(self.clock));
        match self.rng.below(3) {
            0 => Event::OperationBegun { op, digest, session: SessionId(n), at },
            1 => Event::OperationDone { op, digest, reply: vec![9; self.rng.index(64)], at },
            _ => Event::OperationForgotten { op },
        }
    }

    fn rare(&mut self, choice: u64) -> Event {
        let (session, token) = (SessionId(1), Token { epoch: Epoch(1), n: 1 });
        let kind = CandidateKind::Requested;
        match choice % 12 {
            0 => Event::PoolStarted {
                epoch: Epoch(self.now.pool.epoch().0 + 1),
                build: "0.1.0".to_owned(),
                boot: format!("boot-{choice}"),
            },
            1 => Event::NextSession { next: self.now.pool.next_session() + 5 },
            2 => Event::TagRetired { tag: self.tag(), session },
            10 => Event::TagForgotten(self.now.pool.retired_tags().next().unwrap_or(Tag([0; 16]))),
            11 => Event::ClockRead(Clock {
                read_at: Timestamp(choice),
                awake_ms: choice,
                seq: Seq(choice),
                steps: vec![ClockStep::new(Timestamp(1 << 50), Timestamp((1 << 50) + choice))],
            }),
            3 => Event::ReapStarted { session, kind, tag: self.tag(), token },
            4 => Event::ReapFinished {
                session,
                kind,
                tag: self.tag(),
                outcome: Outcome::Gone { killed: vec![] },
            },
            5 => Event::WatcherConnected { build: "0.1.0".to_owned() },
            6 => Event::WatcherLost { reason: "gone".to_owned() },
            7 => {
                let (id, kinds) = (GeneratorId(self.now.pool.seq().0 + 1), vec!["summarize".to_owned()]);
                Event::GeneratorRegistered { id, session: Some(session), kinds, process: None }
            }
            8 => Event::GeneratorEnded {
                id: GeneratorId(7),
                session: Some(session),
                reason: "it left".to_owned(),
            },
            _ => Event::TmuxServerChanged {
                server: (!choice.is_multiple_of(3))
                    .then_some(ServerId { process: ProcId { pid: 9, start: choice }, started_at: 5 }),
            },
        }
    }
}
