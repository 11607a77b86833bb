//! The queues and their reference, side by side: does what a daemon does, and compares after each step.

use std::time::Duration;

use pool::deadlines::{Deadlines, Mono};
use pool::lock::LockTable;
use pool::queue::{ClaimQuery, LeaseEnd, PendingMessage};
use pool::{QueueRules, queue};
use protocol::reply::QueueCounts;
use protocol::request::{ClaimRef, Disposition, Purge, ResolveMessage, Send};
use protocol::{
    Epoch, ErrorCode, Event, Holder, MessageId, MessageState, OpId, OsBytes, PROMPT, ProcId, Reason, Refusal,
    SessionId, Timestamp, Token,
};

use super::command::{Command, KINDS, Moves, Op, Sending};
use super::reference::{Kept, Reference};
use super::{asked, send};
use crate::world::{World, process, server};

const SESSIONS: [SessionId; 3] = [SessionId(1), SessionId(2), SessionId(3)];
/// Time at which the clocks begin.
const START: u64 = 1_800_000_000_000;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) world: World,
    pub(crate) reference: Reference,
    pub(crate) rules: QueueRules,
    epoch: u64,
    locks: LockTable,
    mono: Mono,
    deadlines: Deadlines,
    /// Every claim ever made, and the operation of every send.
    pub(crate) given: Vec<ClaimRef>,
    ops: Vec<OpId>,
    newest: Token,
    /// The present process number of each worker.
    workers: [u32; 2],
}

/// Rules so tight that every limit is met.
pub(crate) fn tight() -> QueueRules {
    QueueRules {
        max_messages: 6,
        max_bytes: 200,
        pool_max_messages: 9,
        pool_max_bytes: 300,
        max_attempts: 3,
        breaker_failures: 2,
        breaker_pause: Duration::from_secs(30),
        keep_done: Duration::from_secs(3600),
        keep_dead: Duration::from_secs(40 * 3600),
        keep_count: 3,
        ..QueueRules::default()
    }
}

impl Machine {
    /// Two live sessions and one that is over.
    pub(crate) fn new(rules: QueueRules) -> Self {
        let mut world = World { now: START, ..World::default() };
        for (n, name) in (1..).zip(["a", "b", "c"]) {
            world.live(name, server(1), n);
        }
        world.emit(Event::SessionStopped { session: SESSIONS[2], reason: Reason::Exited, exit: None });
        world.emit(Event::PoolStarted { epoch: Epoch(1), build: String::new(), boot: String::new() });
        Self {
            world,
            reference: Reference { rules: rules.clone(), ..Reference::default() },
            rules,
            epoch: 1,
            locks: LockTable::new(Epoch(1)),
            mono: Mono(0),
            deadlines: Deadlines::default(),
            given: Vec::new(),
            ops: Vec::new(),
            newest: Token::default(),
            workers: [1000, 2000],
        }
    }

    pub(crate) fn run(&mut self, commands: &[Command]) {
        for command in commands {
            self.step(command);
            self.compare();
        }
        self.compare_disk();
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.world.now)
    }

    fn step(&mut self, command: &Command) {
        match command {
            Command::Send(sending) => drop(self.send(sending)),
            Command::Claim { session, kinds, max, worker } => {
                let process = worker.map(|n| process(self.workers[n]));
                drop(self.claim(*session, kinds, *max, process));
            }
            Command::Heartbeat(back) => self.heartbeat(*back),
            Command::Ack(back) => self.ack(*back),
            Command::Fail(back, then) => self.fail(*back, *then),
            Command::WorkerDies(n) => self.worker_dies(*n),
            Command::Type(session) => self.type_next(*session),
            Command::Prompt(nth, moves) => self.prompt(*nth, *moves),
            Command::Cancel(nth) => self.cancel(*nth),
            Command::Retry(nth) => self.retry(*nth),
            Command::Resolve(nth, resolution) => {
                let (id, now) = (self.nth(*nth), self.now());
                let asked = ResolveMessage { id, resolution: *resolution };
                let decided = queue::resolve(&self.world.pool, &asked, now);
                let expected = self.reference.resolve(id, *resolution, now.0);
                self.agree(decided, expected);
            }
            Command::Purge { session, states, older_ms } => self.purge(*session, states, *older_ms),
            Command::Pass(ms) => self.pass(*ms),
            Command::Jump(ms) => {
                self.world.now = self.world.now.saturating_add_signed(*ms);
                assert_eq!(self.deadlines.take_passed(self.mono), [], "a lease ended by the wall clock");
                self.expire();
            }
            Command::Forget => self.forget(),
            Command::AgeOperations => {
                self.world.pool.age_operations();
                self.reference.messages.iter_mut().for_each(|m| m.op_age += 1);
            }
            Command::Crash => self.crash(),
        }
    }

    /// Applies a decision that the reference expects.
    fn agree(&mut self, decided: Result<Vec<Event>, Refusal>, expected: Result<(), ErrorCode>) {
        assert_eq!(decided.as_ref().map(|_| ()).map_err(|refusal| refusal.code), expected);
        self.world.emit_all(decided.unwrap_or_default());
    }

    /// The id of a message, or an unknown one.
    fn nth(&self, n: usize) -> MessageId {
        let all = &self.reference.messages;
        if all.is_empty() { MessageId(999) } else { all[n % all.len()].id }
    }

    pub(crate) fn send(&mut self, sending: &Sending) -> Result<MessageId, ErrorCode> {
        let Sending { session, kind, priority, size, ttl_ms, .. } = *sending;
        let nth_op = |n: usize| self.ops.iter().rev().nth(n).cloned();
        let op = match sending.op {
            Op::Again(n) => nth_op(n),
            Op::Named(n) => Some(OpId::Named(format!("op{n}"))),
            Op::Fresh => None,
        };
        let fresh = || OpId::Random((self.ops.len() as u128 + 1).to_le_bytes());
        let op = op.unwrap_or_else(fresh);
        self.ops.push(op.clone());
        let key = sending.key.map(|n| format!("key{n}"));
        let cause = sending.cause.map(|n| self.nth(n));
        let body = OsBytes(vec![b'x'; size as usize]);
        let request = Send { body, key: key.clone(), priority, ttl_ms, cause, ..asked(session, kind) };
        let sent = send(&mut self.world, &self.rules, &request, &op);
        let now = self.world.now;
        let hops = cause.and_then(|id| self.reference.get(id)).map_or(0, |cause| cause.hops + 1);
        let kept = Kept {
            id: *sent.as_ref().unwrap_or(&MessageId(0)),
            session,
            kind,
            priority,
            size,
            key,
            op,
            op_age: 0,
            hops,
            created: now,
            expires: ttl_ms.map(|ms| now + ms),
            state: MessageState::Queued,
            attempts: 0,
            token: None,
            process: None,
            not_before: None,
            since: now,
            change: 0,
            anew: false,
        };
        match self.reference.send(&kept, cause) {
            Ok(None) => {
                assert!(
                    sent.as_ref().is_ok_and(|id| self.reference.get(*id).is_none()),
                    "{sent:?}: {kept:?}"
                );
                self.reference.messages.push(kept);
            }
            expected => assert_eq!(sent, expected.map(Option::unwrap)),
        }
        sent
    }

    /// Issues a token that is larger than all before.
    fn issue(&mut self) -> Token {
        let token = self.locks.issue_token();
        assert!(token > self.newest, "{token} after {}", self.newest);
        self.newest = token;
        token
    }

    pub(crate) fn claim(
        &mut self,
        session: SessionId,
        kinds: &[String],
        max: usize,
        process: Option<ProcId>,
    ) -> Vec<ClaimRef> {
        let now = self.now();
        let found = queue::claimable(&self.world.pool, ClaimQuery { session, kinds, max }, now);
        let found: Vec<MessageId> = found.iter().map(|open| open.id).collect();
        let wanted = |kind: &&str| {
            if kinds.is_empty() { *kind != PROMPT } else { kinds.iter().any(|wanted| wanted == kind) }
        };
        let wanted: Vec<&'static str> = KINDS.into_iter().filter(wanted).collect();
        let mut expected = self.reference.claimable(session, &wanted, now.0);
        expected.truncate(max);
        assert_eq!(found, expected);
        found.into_iter().map(|id| self.give(id, process)).collect()
    }

    fn give(&mut self, id: MessageId, process: Option<ProcId>) -> ClaimRef {
        let (now, token, lease) = (self.now(), self.issue(), self.rules.lease);
        let holder = Holder {
            generator: None,
            process,
            lease_ms: protocol::time::millis(lease),
            op: None,
            host: None,
        };
        let event = queue::claimed(&self.open(id), token, holder, now);
        self.world.emit(event);
        let held = ClaimRef { id, token };
        self.reference.give(held, MessageState::Claimed, process, now.0);
        self.deadlines.set(id, self.mono.after(lease));
        self.given.push(held);
        held
    }

    fn open(&self, id: MessageId) -> PendingMessage<'_> {
        self.world.pool.find_pending(id).unwrap()
    }

    fn held(&self, back: usize) -> Option<ClaimRef> {
        self.given.iter().rev().nth(back).copied()
    }

    fn heartbeat(&mut self, back: usize) {
        let Some(held) = self.held(back).filter(|held| self.reference.holds(*held)) else { return };
        assert_eq!(self.open(held.id).token, Some(held.token));
        self.deadlines.set(held.id, self.mono.after(self.rules.lease));
    }

    fn ack(&mut self, back: usize) {
        let (Some(held), now) = (self.held(back), self.now()) else { return };
        let decided = queue::ack(&self.world.pool, held, None, now);
        let expected = self.reference.ack(held, now.0);
        self.settled(held, decided, expected);
    }

    fn fail(&mut self, back: usize, then: Disposition) {
        let (Some(held), now) = (self.held(back), self.now()) else { return };
        let decided = queue::fail(&self.world.pool, &self.rules, held, ("why", then), now);
        let expected = self.reference.fail(held, then, now.0);
        self.settled(held, decided, expected);
    }

    fn settled(&mut self, held: ClaimRef, decided: Result<Vec<Event>, Refusal>, expected: bool) {
        if expected {
            self.deadlines.clear(held.id);
        }
        self.agree(decided, if expected { Ok(()) } else { Err(ErrorCode::Conflict) });
    }

    fn worker_dies(&mut self, n: usize) {
        let (dead, now) = (process(self.workers[n]), self.now());
        self.workers[n] += 1;
        let events = queue::release_dead_worker(&self.world.pool, &self.rules, dead, |_| false, now);
        self.world.emit_all(events);
        self.reference.dead_worker(dead, now.0);
    }

    fn type_next(&mut self, session: SessionId) {
        let now = self.now();
        let next = queue::next_prompt(&self.world.pool, session, now).map(|open| open.id);
        let head = self.reference.head(session, PROMPT, now.0).filter(|_| session != SESSIONS[2]);
        assert_eq!(next, head.map(|m| m.id));
        let Some(id) = next else { return };
        let token = self.issue();
        let event = queue::begin_typing(&self.open(id), token, now);
        self.world.emit(event);
        self.reference.give(ClaimRef { id, token }, MessageState::Typing, None, now.0);
    }

    fn prompt(&mut self, nth: usize, moves: Moves) {
        use MessageState::{Accepted, Dead, Done, InDoubt, Typed, Typing};
        let with_the_agent = |m: &&Kept| matches!(m.state, Typing | Typed | Accepted);
        let Some(m) = self.reference.open().filter(with_the_agent).nth(nth) else { return };
        let (id, now) = (m.id, self.now());
        let to = match (moves, m.state) {
            (Moves::Back, Typing) => {
                let event = queue::give_back(&self.open(id), "why".into(), now);
                self.world.emit(event);
                return self.reference.give_back(id, now.0);
            }
            (Moves::Dead, _) => Dead,
            (Moves::InDoubt, _) => InDoubt,
            (_, Typing) => Typed,
            (_, Typed) => Accepted,
            _ => Done,
        };
        let event = queue::transition(&self.open(id), to, Some("why".into()), now);
        self.world.emit(event);
        self.reference.move_to(id, to, now.0);
    }

    fn cancel(&mut self, nth: usize) {
        let (id, now) = (self.nth(nth), self.now());
        let expected = self.reference.cancel(id, now.0);
        self.agree(queue::cancel(&self.world.pool, id, now), expected);
    }

    fn retry(&mut self, nth: usize) {
        let (id, now) = (self.nth(nth), self.now());
        let expected = self.reference.retry(id, now.0);
        self.agree(queue::retry(&self.world.pool, &self.rules, id, now), expected);
    }

    fn purge(&mut self, session: SessionId, states: &[MessageState], older_ms: u64) {
        let asked =
            Purge { session: asked(session, PROMPT).session, ids: vec![], states: states.to_vec(), older_ms };
        let (record, now) = (self.world.pool.session(session).unwrap(), self.now());
        let pool = &self.world.pool;
        let decided =
            queue::check_purge(pool, record, &asked).map(|()| queue::purge(pool, record.id, &asked, now));
        if !states.iter().all(|state| state.is_final()) {
            return self.agree(decided, Err(ErrorCode::Usage));
        }
        self.reference.messages.retain(|m| {
            let wanted = m.session == session && (states.is_empty() || states.contains(&m.state));
            m.is_open() || !wanted || now.0.saturating_sub(m.since) < older_ms
        });
        self.agree(decided, Ok(()));
    }

    fn pass(&mut self, ms: u64) {
        self.world.now += ms;
        self.mono = self.mono.after(Duration::from_millis(ms));
        for id in self.deadlines.take_passed(self.mono) {
            if self.reference.get(id).is_some_and(|m| m.state == MessageState::Claimed) {
                self.lapse(id);
            }
        }
        self.expire();
    }

    /// Ends a lease: a registered worker that lives has to be killed first.
    fn lapse(&mut self, id: MessageId) {
        let now = self.now();
        let gone = match self.open(id).holder.and_then(|holder| holder.process) {
            Some(process) => {
                assert!(self.workers.contains(&process.pid), "what the dead held is free");
                LeaseEnd::Revoke(self.issue())
            }
            None => LeaseEnd::Release,
        };
        let events = queue::lease_ended(&self.world.pool, &self.rules, &self.open(id), (gone, "silent"), now);
        self.world.emit_all(events);
        match gone {
            LeaseEnd::Revoke(token) => self.reference.revoke(id, token, now.0),
            LeaseEnd::Release => self.reference.taken(id, now.0),
        }
    }

    fn expire(&mut self) {
        let now = self.now();
        self.world.emit_all(queue::expired(&self.world.pool, now));
        for (at, id) in self.reference.expiring() {
            if at <= now.0 {
                self.reference.move_to(id, MessageState::Expired, now.0);
            }
        }
    }

    fn forget(&mut self) {
        let now = self.now();
        let forgotten = queue::past_retention(&self.world.pool, &self.rules, now);
        self.world.emit_all(forgotten);
        for session in SESSIONS {
            let gone = self.reference.outdated(session, now.0);
            self.reference.messages.retain(|m| !gone.contains(&m.id));
        }
        assert_eq!(queue::past_retention(&self.world.pool, &self.rules, now), []);
    }

    fn crash(&mut self) {
        self.compare_disk();
        self.world.pool = self.world.rebuilt();
        self.epoch += 1;
        let epoch = Epoch(self.epoch);
        self.world.emit(Event::PoolStarted { epoch, build: String::new(), boot: String::new() });
        (self.locks, self.mono, self.deadlines) = (LockTable::new(epoch), Mono(0), Deadlines::default());
        let now = self.now();
        // No pane tells what was typed.
        let typing = self.world.pool.held_messages().filter(|open| open.state == MessageState::Typing);
        let events: Vec<Event> =
            typing.map(|open| queue::transition(&open, MessageState::InDoubt, None, now)).collect();
        self.world.emit_all(events);
        self.reference.crash(now.0);
        for open in self.world.pool.held_messages().filter(|open| open.state == MessageState::Claimed) {
            self.deadlines.set(open.id, self.mono.after(self.rules.lease));
        }
    }
}

/// Comparisons after every step.
impl Machine {
    fn compare(&self) {
        SESSIONS.into_iter().for_each(|session| self.compare_session(session));
        self.compare_counts();
        let (pool, now) = (&self.world.pool, self.now());
        let seen = pool.breakers();
        let seen: Vec<_> =
            seen.map(|(session, kind, b)| (session, kind, b.failures, b.opened_at, b.probe_at)).collect();
        let kept = self.reference.failures.iter().map(|((session, kind), f)| {
            (*session, *kind, f.in_a_row, f.opened.map(Timestamp), f.probe.map(Timestamp))
        });
        assert_eq!(seen, kept.collect::<Vec<_>>());
        assert_eq!(queue::next_due(pool, now), self.reference.next_due(now.0).map(Timestamp));
    }

    /// Every message is in exactly one list, in its order, and at most one of a kind is in flight.
    fn compare_session(&self, session: SessionId) {
        let pool = &self.world.pool;
        let mut seen = pool.pending_messages_of(session);
        for kind in KINDS_IN_ORDER {
            let kind_queue = self.reference.kind_queue(session, kind);
            assert!(kind_queue.iter().filter(|m| m.is_held()).count() <= 1);
            kind_queue.into_iter().for_each(|m| same(&seen.next().unwrap(), m));
        }
        assert_eq!(seen.next(), None);
        let over = self.reference.over(session).into_iter();
        let over = over.map(|m| (m.id, m.state, m.kind, Timestamp(m.since)));
        assert!(pool.finished_messages_of(session).eq(over), "over: {session}");
        let all = ClaimQuery { session, kinds: &[], max: usize::MAX };
        let given = queue::claimable(pool, all, self.now()).into_iter().map(|open| open.id);
        assert!(given.eq(self.reference.claimable(session, &KINDS[1..], self.world.now)), "next: {session}");
    }

    fn compare_counts(&self) {
        let pool = &self.world.pool;
        let (mut count, mut bytes) = (0, 0);
        for session in SESSIONS {
            let counts = self.counts(|m| m.session == session);
            assert_eq!(pool.queue_counts(Some(session)), counts, "{session}");
            let open: Vec<_> = self.reference.open().filter(|m| m.session == session).collect();
            let size = (open.len() as u64, open.iter().map(|m| u64::from(m.size)).sum::<u64>());
            assert_eq!(pool.queue_size(session), size, "{session}");
            assert_eq!(pool.is_queue_empty(session), open.is_empty());
            (count, bytes) = (count + size.0, bytes + size.1);
        }
        assert_eq!(pool.queue_counts(None), self.counts(|_| true));
        assert_eq!(pool.queue_totals(), (count, bytes));
    }

    fn counts(&self, of: impl Fn(&Kept) -> bool) -> QueueCounts {
        let all: Vec<&Kept> = self.reference.messages.iter().filter(|m| of(m)).collect();
        let number = |is: fn(&Kept) -> bool| all.iter().filter(|m| is(m)).count() as u64;
        // The clock may have jumped: the first to come is the oldest.
        let first = all.iter().filter(|m| m.state == MessageState::Queued).min_by_key(|m| m.id);
        QueueCounts {
            queued: number(|m| m.state == MessageState::Queued),
            claimed: number(|m| m.is_held() && m.state != MessageState::InDoubt),
            in_doubt: number(|m| m.state == MessageState::InDoubt),
            dead: number(|m| m.state == MessageState::Dead),
            oldest_at: first.map(|m| Timestamp(m.created)),
        }
    }

    /// A new daemon would load the same state, and each row has what the message's holder may repeat.
    fn compare_disk(&self) {
        assert_eq!(self.world.rebuilt(), self.world.pool);
        assert!(self.world.disk.messages.keys().eq(self.reference.messages.iter().map(|m| &m.id)));
        for m in &self.reference.messages {
            let (message, last) = &self.world.disk.messages[&m.id];
            let status = last.as_ref().unwrap_or(&message.status);
            assert_eq!((status.state, status.attempts, status.token), (m.state, m.attempts, m.token));
            assert_eq!((message.hops, message.ordinal > 0), (m.hops, true));
            assert_eq!(self.world.pool.find_message(m.id), Some((m.session, m.state)));
            assert_eq!(self.world.pool.message_kind(m.session, m.id), Some(m.kind));
        }
    }
}

/// The kinds, in the order in which they are in memory.
const KINDS_IN_ORDER: [&str; 3] = ["observation", PROMPT, "summarize"];

fn same(open: &PendingMessage<'_>, m: &Kept) {
    let in_flight = m.is_held();
    let expected = PendingMessage {
        id: m.id,
        session: m.session,
        kind: m.kind,
        priority: m.priority,
        size: m.size,
        created_at: Timestamp(m.created),
        state: m.state,
        attempts: m.attempts,
        token: m.token.filter(|_| in_flight),
        holder: open.holder,
        not_before: m.not_before.map(Timestamp),
        since: Timestamp(if in_flight || m.was_tried() { m.since } else { m.created }),
        is_suspended: false,
        in_doubt: None,
        needs_person: false,
    };
    assert_eq!(*open, expected);
    assert_eq!(open.holder.and_then(|holder| holder.process), m.process);
}
