//! Queues in the plainest form: a list of messages.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pool::QueueRules;
use pool::queue::{PROBE_PAUSE_MAX, RETRY_PAUSE_MAX};
use protocol::request::{ClaimRef, Disposition, Resolution};
use protocol::{ErrorCode, MessageId, MessageState, OpId, ProcId, SessionId, Token, millis};

use MessageState::{
    Accepted, Cancelled, Claimed, Dead, Done, Expired, InDoubt, Queued, Revoking, Suspended, Typed, Typing,
};

/// Number of changes of messages so far, of all tests.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// A message.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) id: MessageId,
    pub(crate) session: SessionId,
    pub(crate) kind: &'static str,
    pub(crate) priority: i8,
    pub(crate) size: u32,
    pub(crate) key: Option<String>,
    pub(crate) op: OpId,
    /// Number of times that random operation ids have aged since.
    pub(crate) op_age: u32,
    pub(crate) hops: u8,
    pub(crate) created: u64,
    pub(crate) expires: Option<u64>,
    pub(crate) state: MessageState,
    pub(crate) attempts: u32,
    /// The last token under which it was held, unless it was reset or ended while it waited.
    pub(crate) token: Option<Token>,
    pub(crate) process: Option<ProcId>,
    pub(crate) not_before: Option<u64>,
    pub(crate) since: u64,
    /// The number of its last change.
    pub(crate) change: u64,
    /// True if a user queued it again and no attempt began since.
    pub(crate) anew: bool,
}

/// Failures of a kind in a row; the time since which it is held back; the time of its next probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Failures {
    pub(crate) in_a_row: u32,
    pub(crate) opened: Option<u64>,
    pub(crate) probe: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    pub(crate) rules: QueueRules,
    pub(crate) messages: Vec<Kept>,
    pub(crate) failures: BTreeMap<(SessionId, &'static str), Failures>,
}

fn doubled(base: Duration, times: u32, most: Duration) -> u64 {
    (0..times).fold(millis(base), |pause, _| (pause * 2).min(millis(most))).min(millis(most))
}

impl Kept {
    pub(crate) fn is_open(&self) -> bool {
        !self.state.is_final()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_open() && self.state != Queued
    }

    pub(crate) fn was_tried(&self) -> bool {
        self.attempts > 0 || self.not_before.is_some()
    }

    fn is_due(&self, now: u64) -> bool {
        self.not_before.is_none_or(|at| at <= now || now < self.since)
    }

    fn turn(&mut self, state: MessageState, now: u64) {
        // The state in which a message was held before it was queued again is not in memory: if it ends while it is
        // queued, that state is lost.
        if self.state == Queued {
            self.token = None;
        }
        self.change = CHANGES.fetch_add(1, Ordering::Relaxed);
        (self.state, self.since, self.not_before, self.process, self.anew) = (state, now, None, None, false);
    }

    fn start_anew(&mut self, now: u64) {
        self.turn(Queued, now);
        (self.attempts, self.token, self.anew) = (0, None, true);
    }
}

impl Reference {
    pub(crate) fn get(&self, id: MessageId) -> Option<&Kept> {
        self.messages.iter().find(|m| m.id == id)
    }

    fn get_mut(&mut self, id: MessageId) -> &mut Kept {
        self.messages.iter_mut().find(|m| m.id == id).unwrap()
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &Kept> {
        self.messages.iter().filter(|m| m.is_open())
    }

    /// The message that a send leads to; none for a new one.
    pub(crate) fn send(
        &self,
        wanted: &Kept,
        cause: Option<MessageId>,
    ) -> Result<Option<MessageId>, ErrorCode> {
        let remembered = |m: &&Kept| m.op == wanted.op && (matches!(m.op, OpId::Named(_)) || m.op_age < 2);
        let by_op = self.messages.iter().rfind(remembered);
        if let Some(first) = by_op {
            return if first.size == wanted.size { Ok(Some(first.id)) } else { Err(ErrorCode::Conflict) };
        }
        let by_key = |m: &&Kept| m.session == wanted.session && m.key.is_some() && m.key == wanted.key;
        if let Some(first) = self.messages.iter().find(by_key) {
            let same = first.size == wanted.size && first.kind == wanted.kind;
            return if same { Ok(Some(first.id)) } else { Err(ErrorCode::Conflict) };
        }
        let cause = cause.and_then(|id| self.get(id));
        let feeds = cause.is_some_and(|c| c.session == wanted.session && c.kind == wanted.kind);
        let over = wanted.session == SessionId(3);
        if over || feeds || !self.has_room(wanted) { Err(ErrorCode::Refused) } else { Ok(None) }
    }

    /// True if one more message like this fits.
    fn has_room(&self, wanted: &Kept) -> bool {
        let of = |m: &&Kept| m.session == wanted.session;
        let fits = |all: Vec<&Kept>, count: u64, bytes: u64| {
            let sum: u32 = all.iter().map(|m| m.size).sum();
            (all.len() as u64) < count && u64::from(sum + wanted.size) <= bytes
        };
        let r = &self.rules;
        let its_own = fits(self.open().filter(of).collect(), r.max_messages, r.max_bytes);
        its_own && fits(self.open().collect(), r.pool_max_messages, r.pool_max_bytes)
    }

    /// The pending messages of a kind, in the order in which they are worked.
    pub(crate) fn kind_queue(&self, session: SessionId, kind: &str) -> Vec<&Kept> {
        let mut kind_queue: Vec<_> = self.open().filter(|m| m.session == session && m.kind == kind).collect();
        kind_queue.sort_by_key(|m| (Reverse(m.priority), m.id));
        kind_queue
    }

    /// The next message of a kind, if it can be attempted now.
    pub(crate) fn head(&self, session: SessionId, kind: &str, now: u64) -> Option<&Kept> {
        let kind_queue = self.kind_queue(session, kind);
        let key = self.failures.keys().find(|(of, its)| *of == session && *its == kind);
        let failures = key.map(|key| self.failures[key]).unwrap_or_default();
        let in_the_past = |at: u64| at <= now || at - now > millis(PROBE_PAUSE_MAX);
        let lets_through = failures.opened.is_none() || failures.probe.is_none_or(in_the_past);
        let free = kind_queue.iter().all(|m| m.state == Queued);
        kind_queue.first().copied().filter(|m| free && lets_through && m.is_due(now))
    }

    pub(crate) fn claimable(&self, session: SessionId, kinds: &[&'static str], now: u64) -> Vec<MessageId> {
        let mut heads: Vec<_> = kinds.iter().filter_map(|kind| self.head(session, kind, now)).collect();
        heads.sort_by_key(|m| (Reverse(m.priority), m.id));
        heads.iter().map(|m| m.id).collect()
    }

    pub(crate) fn give(&mut self, held: ClaimRef, state: MessageState, process: Option<ProcId>, now: u64) {
        let most = self.rules.max_attempts;
        let m = self.get_mut(held.id);
        assert!(m.state == Queued && m.attempts < most, "{m:?}");
        m.turn(state, now);
        (m.attempts, m.token, m.process) = (m.attempts + 1, Some(held.token), process);
    }

    pub(crate) fn holds(&self, held: ClaimRef) -> bool {
        self.get(held.id).is_some_and(|m| m.state == Claimed && m.token == Some(held.token))
    }

    pub(crate) fn ack(&mut self, held: ClaimRef, now: u64) -> bool {
        if !self.holds(held) {
            return false;
        }
        self.move_to(held.id, Done, now);
        let m = self.get(held.id).unwrap();
        self.failures.remove(&(m.session, m.kind));
        true
    }

    pub(crate) fn fail(&mut self, held: ClaimRef, then: Disposition, now: u64) -> bool {
        if !self.holds(held) {
            return false;
        }
        match then {
            Disposition::Retry => self.failed(held.id, now),
            Disposition::Later(pause) => {
                self.again(held.id, pause, now);
                self.put_off_probe(held.id, now);
            }
            Disposition::Dead => {
                self.move_to(held.id, Dead, now);
                let m = self.get(held.id).unwrap();
                let key = (m.session, m.kind);
                self.failures.retain(|of, failures| *of != key || failures.opened.is_none());
            }
            Disposition::GiveBack => self.give_back(held.id, now),
        }
        true
    }

    pub(crate) fn give_back(&mut self, id: MessageId, now: u64) {
        self.move_to(id, Queued, now);
        self.get_mut(id).attempts -= 1;
    }

    /// An attempt failed.
    pub(crate) fn failed(&mut self, id: MessageId, now: u64) {
        self.again(id, None, now);
        self.count_failure(id, now);
    }

    /// A message is taken from its holder, whose token is void from here on.
    pub(crate) fn taken(&mut self, id: MessageId, now: u64) {
        self.failed(id, now);
        self.get_mut(id).token = None;
    }

    fn again(&mut self, id: MessageId, pause: Option<u64>, now: u64) {
        let (most, base) = (self.rules.max_attempts, self.rules.retry_backoff);
        let m = self.get_mut(id);
        if m.attempts >= most {
            return m.turn(Dead, now);
        }
        let pause = pause.unwrap_or_else(|| doubled(base, m.attempts - 1, RETRY_PAUSE_MAX));
        m.turn(Queued, now);
        m.not_before = Some(now + pause);
    }

    fn count_failure(&mut self, id: MessageId, now: u64) {
        let m = self.get(id).unwrap();
        let (n, base) = (self.rules.breaker_failures, self.rules.breaker_pause);
        let f = self.failures.entry((m.session, m.kind)).or_default();
        f.in_a_row += 1;
        if f.in_a_row >= n {
            f.opened = f.opened.or(Some(now));
            f.probe = Some(now + doubled(base, f.in_a_row - n, PROBE_PAUSE_MAX));
        }
    }

    fn put_off_probe(&mut self, id: MessageId, now: u64) {
        let m = self.get(id).unwrap();
        let (n, base) = (self.rules.breaker_failures, self.rules.breaker_pause);
        if let Some(f) = self.failures.get_mut(&(m.session, m.kind)).filter(|f| f.opened.is_some()) {
            f.probe = Some(now + doubled(base, f.in_a_row - n, PROBE_PAUSE_MAX));
        }
    }

    pub(crate) fn move_to(&mut self, id: MessageId, state: MessageState, now: u64) {
        self.get_mut(id).turn(state, now);
    }

    /// A message is taken from a worker that lives on.
    pub(crate) fn revoke(&mut self, id: MessageId, token: Token, now: u64) {
        let m = self.get_mut(id);
        let process = m.process;
        m.turn(Revoking, now);
        (m.token, m.process) = (Some(token), process);
    }

    pub(crate) fn dead_worker(&mut self, process: ProcId, now: u64) {
        let of = |m: &&Kept| matches!(m.state, Claimed | Revoking) && m.process == Some(process);
        let its: Vec<_> = self.messages.iter().filter(of).map(|m| m.id).collect();
        its.into_iter().for_each(|id| self.taken(id, now));
    }

    pub(crate) fn crash(&mut self, now: u64) {
        for m in &mut self.messages {
            m.op_age = 0;
            if m.state == Typing {
                m.turn(InDoubt, now);
            }
        }
    }

    pub(crate) fn cancel(&mut self, id: MessageId, now: u64) -> Result<(), ErrorCode> {
        match self.get(id).ok_or(ErrorCode::NotFound)?.state {
            Cancelled => Ok(()),
            Queued | Claimed | Revoking | InDoubt => {
                self.move_to(id, Cancelled, now);
                Ok(())
            }
            Typing | Typed | Accepted | Suspended | Done | Dead | Expired => Err(ErrorCode::Conflict),
        }
    }

    pub(crate) fn retry(&mut self, id: MessageId, now: u64) -> Result<(), ErrorCode> {
        let m = self.get(id).ok_or(ErrorCode::NotFound)?.clone();
        match m.state {
            Queued if !m.was_tried() => {}
            Dead | Cancelled | Expired if !self.has_room(&m) => return Err(ErrorCode::Refused),
            Queued | Dead | Cancelled | Expired | InDoubt => self.get_mut(id).start_anew(now),
            Claimed | Typing | Typed | Accepted | Suspended | Revoking | Done => {
                return Err(ErrorCode::Conflict);
            }
        }
        self.failures.remove(&(m.session, m.kind));
        Ok(())
    }

    pub(crate) fn resolve(&mut self, id: MessageId, wanted: Resolution, now: u64) -> Result<(), ErrorCode> {
        let kept = self.get(id).ok_or(ErrorCode::NotFound)?;
        // This also holds after the clock was set back without a record of that.
        let just_typed = kept.state == Typed && now < kept.since + 12_000;
        match (kept.state, wanted) {
            (Typed, Resolution::Retry) if just_typed => return Err(ErrorCode::Conflict),
            (InDoubt | Typed | Accepted, Resolution::Done) => self.move_to(id, Done, now),
            (InDoubt | Typed | Accepted, Resolution::Dead) => self.move_to(id, Dead, now),
            (InDoubt | Typed | Accepted, Resolution::Retry) => self.get_mut(id).start_anew(now),
            (Done, Resolution::Done) | (Dead, Resolution::Dead) | (Queued, Resolution::Retry) => {}
            _ => return Err(ErrorCode::Conflict),
        }
        Ok(())
    }

    /// The finished messages, dead ones first, in the order of their ends.
    pub(crate) fn over(&self, session: SessionId) -> Vec<&Kept> {
        let mut over: Vec<_> =
            self.messages.iter().filter(|m| m.session == session && !m.is_open()).collect();
        over.sort_by_key(|m| (m.state != Dead, m.change));
        over
    }

    /// The messages that retention forgets: the oldest of a session's dead and of its other finished messages, beyond
    /// the number that is kept, and those whose time is over, unless they may be repeated: in their first ten minutes,
    /// with a key or a chosen operation id in their first day. After a step of the clock that is not on record, one
    /// whose time is not over keeps those that ended after it.
    pub(crate) fn outdated(&self, session: SessionId, now: u64) -> Vec<MessageId> {
        let (dead, other): (Vec<_>, Vec<_>) = self.over(session).into_iter().partition(|m| m.state == Dead);
        let of_list = |list: Vec<&Kept>, age: Duration| {
            let excess = list.len().saturating_sub(usize::try_from(self.rules.keep_count).unwrap());
            let is_old = |m: &Kept| now.saturating_sub(m.since) > millis(age);
            let may_be_repeated = |m: &Kept| {
                let named = m.key.is_some() || matches!(m.op, OpId::Named(_));
                let minutes = if named { 24 * 60 } else { 10 };
                now.saturating_sub(m.created) <= minutes * 60 * 1000
            };
            let (by_number, rest) = list.split_at(excess);
            let by_age = rest.iter().take_while(|m| is_old(m)).filter(|m| !may_be_repeated(m));
            by_number.iter().chain(by_age).map(|m| m.id).collect::<Vec<_>>()
        };
        [of_list(other, self.rules.keep_done), of_list(dead, self.rules.keep_dead)].concat()
    }

    /// The ends of all times to live, soonest first.
    pub(crate) fn expiring(&self) -> Vec<(u64, MessageId)> {
        let waits = |m: &&Kept| matches!(m.state, Queued | InDoubt) && !m.anew;
        let mut all: Vec<_> =
            self.messages.iter().filter(waits).filter_map(|m| Some((m.expires?, m.id))).collect();
        all.sort_unstable();
        all
    }

    /// The next time at which a message can be attempted or expires.
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        let pauses = self.open().filter(|m| m.state == Queued).filter_map(|m| m.not_before);
        let probes = self.failures.values().filter_map(|f| f.probe);
        let later = pauses.chain(probes).filter(|at| *at > now);
        later.chain(self.expiring().first().map(|(at, _)| *at)).min()
    }
}
