//! The queues: what is worked next, who holds what, how it ends. Messages of one kind of a session are
//! worked one after the other, in the order in which they were queued, higher priority first.

mod book;
mod breaker;
mod expiry;
mod give;
mod known;
mod lane;
mod retention;
mod settle;
mod slot;

use std::time::Duration;

use protocol::message::PROMPT;
use protocol::reply::QueueCounts;
use protocol::{Breaker, Event, Incarnation, MessageId, MessageState, OpId, Session, SessionId, Timestamp};

use crate::clock::{self, Moment};
use crate::pool::Pool;

pub(crate) use book::Book;
pub use book::Open;
pub use give::{Asked, came_due, claimable, given, next_due, typing};
pub(crate) use known::hash;
pub use retention::outdated;
pub use settle::{
    Gone, ack, cut_off, dead_worker, fail, is_cut_off, lapsed, moved, sent_from_the_start, suspended,
    tried_again, withdrawn,
};
pub(crate) use settle::{held_back, reopen};

/// What the configuration says of queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Messages that a session's queue may hold, those that are over not counted.
    pub max_messages: u64,
    /// Bytes of them.
    pub max_bytes: u64,
    /// Messages that all queues together may hold.
    pub pool_max_messages: u64,
    /// Bytes of them.
    pub pool_max_bytes: u64,
    /// How often a message is given out at most.
    pub max_attempts: u32,
    /// How long a holder may be silent.
    pub lease: Duration,
    /// Pause before the second attempt; doubles with each further one.
    pub retry_backoff: Duration,
    /// Failures in a row after which a kind is held back; 0 for never.
    pub breaker_failures: u32,
    /// Time before the first probe; doubles with each that fails.
    pub breaker_pause: Duration,
    /// How long a message that was worked, cancelled or expired is kept.
    pub keep_done: Duration,
    /// How long a dead one is.
    pub keep_dead: Duration,
    /// How many of either are kept for each session, whatever their age.
    pub keep_count: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_messages: 10_000,
            max_bytes: 64 << 20,
            pool_max_messages: 1_000_000,
            pool_max_bytes: 4 << 30,
            max_attempts: 5,
            lease: Duration::from_secs(60),
            retry_backoff: Duration::from_secs(1),
            breaker_failures: 3,
            breaker_pause: Duration::from_secs(60),
            keep_done: Duration::from_secs(24 * 3600),
            keep_dead: Duration::from_secs(30 * 24 * 3600),
            keep_count: 100_000,
        }
    }
}

/// A pause between two attempts grows no longer than this.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A pause between two probes grows no longer than this.
pub const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30 * 60);

/// `base`, doubled `times` times, at most `max`.
fn doubled(base: Duration, times: u32, max: Duration) -> Duration {
    base.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}

/// A message of a kind that nobody works is a problem after this long.
const UNCLAIMED: Duration = Duration::from_secs(600);

/// Messages of one kind that wait for a worker, where there is none.
#[derive(Debug, Clone, Copy)]
pub struct Unclaimed<'a> {
    /// Whose.
    pub session: &'a Session,
    /// Of which kind.
    pub kind: &'a str,
    /// How many.
    pub count: u64,
    /// When the first of them was queued.
    pub oldest: Timestamp,
}

/// The kinds that have waited for long and that nobody asks for. `is_worked`: whether a session's kind has a worker.
pub fn unclaimed<'a>(
    pool: &'a Pool,
    is_worked: impl Fn(SessionId, &str) -> bool,
    now: Timestamp,
) -> impl Iterator<Item = Unclaimed<'a>> {
    let all = pool.sessions().flat_map(|session| {
        let of = move |(kind, count, oldest)| Unclaimed { session, kind, count, oldest };
        pool.waiting_kinds(session.id).map(of)
    });
    all.filter(move |found| {
        let is_late = found.kind != PROMPT && pool.age(now, found.oldest) >= UNCLAIMED;
        is_late && !is_worked(found.session.id, found.kind)
    })
}

impl Unclaimed<'_> {
    /// What is wrong, and the command that goes on.
    #[must_use]
    pub fn told(&self, age: Duration) -> (String, String) {
        let (kind, name, minutes) = (self.kind, &self.session.name, age.as_secs() / 60);
        let (messages, wait) = if self.count == 1 { ("message", "waits") } else { ("messages", "wait") };
        let count = self.count;
        let text = format!(
            "{count} {messages} of kind {kind} for {name} {wait} for a worker, the oldest for {minutes} min"
        );
        (text, format!("poolctl work {name} --kind {kind} -- …"))
    }
}

/// The command by which a person says what became of a prompt.
#[must_use]
pub fn resolve_command(session: &str, id: MessageId) -> String {
    format!("poolctl queue resolve {session} {id} --as done|retry|dead")
}

impl Pool {
    /// A message that is not over.
    #[must_use]
    pub fn open_message(&self, session: SessionId, id: MessageId) -> Option<Open<'_>> {
        self.book.queue(session)?.get(session, id)
    }

    /// The same where only its number is known.
    #[must_use]
    pub fn find_open(&self, id: MessageId) -> Option<Open<'_>> {
        self.book.queues().find_map(|(session, queue)| queue.get(session, id))
    }

    /// A message in flight where only its number is known.
    #[must_use]
    pub fn find_held(&self, id: MessageId) -> Option<Open<'_>> {
        let holding = self.book.queues().find(|(_, queue)| queue.held.contains_key(&id));
        holding.and_then(|(session, queue)| queue.get(session, id))
    }

    /// All messages of a session that are not over; those of one kind in the order in which they are worked.
    pub fn open_messages_of(&self, session: SessionId) -> impl Iterator<Item = Open<'_>> {
        let lanes = self
            .book
            .queue(session)
            .into_iter()
            .flat_map(|queue| queue.lanes.iter().map(move |(kind, lane)| (queue, kind, lane)));
        lanes.flat_map(move |(queue, kind, lane)| {
            lane.iter().map(move |slot| queue.open_slot(session, kind, slot))
        })
    }

    /// All messages in flight: claimed, being typed, in doubt.
    pub fn held_messages(&self) -> impl Iterator<Item = Open<'_>> {
        self.book
            .queues()
            .flat_map(|(session, queue)| queue.held.keys().filter_map(move |id| queue.get(session, *id)))
    }

    /// Messages of a session that are over, oldest end first: number, where it is, kind, when.
    pub fn over_messages_of(
        &self,
        session: SessionId,
    ) -> impl DoubleEndedIterator<Item = (MessageId, MessageState, &str, Timestamp)> {
        let all = self.book.queue(session).into_iter().flat_map(|queue| queue.overs());
        all.map(|over| (over.id(), over.state, over.kind(), over.at))
    }

    /// Whose a message is and where, over or not.
    #[must_use]
    pub fn find_message(&self, id: MessageId) -> Option<(SessionId, MessageState)> {
        let sessions = self.book.queues().map(|(session, _)| session);
        sessions.filter_map(|session| Some((session, self.message_state(session, id)?))).next()
    }

    /// Bytes of the body of a message that is over.
    #[must_use]
    pub fn size_if_over(&self, session: SessionId, id: MessageId) -> Option<u32> {
        Some(self.book.queue(session)?.find_over(id)?.size())
    }

    /// The kind of a message, over or not.
    #[must_use]
    pub fn message_kind(&self, session: SessionId, id: MessageId) -> Option<&str> {
        let queue = self.book.queue(session)?;
        let open = queue.get(session, id).map(|open| open.kind);
        open.or_else(|| queue.find_over(id).map(|over| over.kind()))
    }

    /// The kinds of which messages of a session wait, how many, and since when the first does.
    pub fn waiting_kinds(&self, session: SessionId) -> impl Iterator<Item = (&str, u64, Timestamp)> {
        let lanes = self.book.queue(session).into_iter().flat_map(|queue| &queue.lanes);
        lanes.filter_map(|(kind, lane)| Some((kind.as_ref(), lane.waiting(), lane.oldest()?)))
    }

    /// Messages of a session that are not over, and their bytes.
    #[must_use]
    pub fn queue_size(&self, session: SessionId) -> (u64, u64) {
        self.book.queue(session).map_or((0, 0), |queue| (queue.open(), queue.bytes))
    }

    /// Where a message is, over or not.
    #[must_use]
    pub fn message_state(&self, session: SessionId, id: MessageId) -> Option<MessageState> {
        let queue = self.book.queue(session)?;
        let open = queue.get(session, id).map(|open| open.state);
        open.or_else(|| queue.find_over(id).map(|over| over.state))
    }

    /// The message of a session that has perhaps this key.
    #[must_use]
    pub fn keyed(&self, session: SessionId, key: &str) -> Option<MessageId> {
        self.book.keyed(session, key)
    }

    /// The message that was perhaps queued by this operation.
    #[must_use]
    pub fn sent_by(&self, op: &OpId) -> Option<MessageId> {
        self.book.sent_by(op)
    }

    /// Half of the time that random operation ids are remembered has passed.
    pub fn age_operations(&mut self) {
        self.book.age_operations();
    }

    /// The failures of a kind, where there are any.
    #[must_use]
    pub fn breaker(&self, session: SessionId, kind: &str) -> Option<&Breaker> {
        // The key owns its text; a look-up is rare, and only while something fails.
        if self.book.breakers.is_empty() {
            return None;
        }
        self.book.breakers.get(&(session, kind.to_owned()))
    }

    /// The kinds of a session with failures.
    pub(crate) fn breakers_of(&self, session: SessionId) -> impl Iterator<Item = (&str, &Breaker)> {
        let from = (session, String::new());
        let its = self.book.breakers.range(from..).take_while(move |((of, _), _)| *of == session);
        its.map(|((_, kind), breaker)| (kind.as_str(), breaker))
    }

    /// All kinds with failures.
    pub fn breakers(&self) -> impl Iterator<Item = (SessionId, &str, &Breaker)> {
        self.book.breakers.iter().map(|((session, kind), breaker)| (*session, kind.as_str(), breaker))
    }

    /// Messages that are not over, of all sessions, and their bytes.
    #[must_use]
    pub fn queue_totals(&self) -> (u64, u64) {
        self.book.totals()
    }
}

/// The sessions whose next prompt can be typed now.
pub fn deliverable(pool: &Pool, now: Timestamp) -> impl Iterator<Item = SessionId> + '_ {
    pool.sessions().filter(move |s| next(pool, s.id, now).is_some()).map(|s| s.id)
}

/// The prompt to type next into a session, if it may be typed now.
#[must_use]
pub fn next(pool: &Pool, session: SessionId, now: Timestamp) -> Option<Open<'_>> {
    let takes = |s: &Session| s.takes_prompts() && s.incarnation.as_ref().is_some_and(is_open);
    pool.session(session).filter(|s| takes(s))?;
    give::head(pool, session, PROMPT, now)
}

/// When the prompt was queued that is next for a session, where its time has come.
#[must_use]
pub fn due_prompt(pool: &Pool, session: SessionId, now: Timestamp) -> Option<Timestamp> {
    give::head(pool, session, PROMPT, now)?;
    pool.prompts(session).oldest
}

/// When the prompt that is next for a session may be typed, where it has to wait for that.
#[must_use]
pub fn next_prompt_at(pool: &Pool, session: SessionId) -> Option<Timestamp> {
    waiting_prompt(pool, session)?.not_before
}

/// The prompt that is next for a session, whether or not it may be typed now.
#[must_use]
pub fn waiting_prompt(pool: &Pool, session: SessionId) -> Option<Open<'_>> {
    let queue = pool.book.queue(session)?;
    let (kind, lane) = queue.lanes.get_key_value(PROMPT)?;
    Some(queue.open_slot(session, kind, queue.next_in(lane)?))
}

/// The prompt of a session that is in flight or in doubt.
#[must_use]
pub fn held_prompt(pool: &Pool, session: SessionId) -> Option<Open<'_>> {
    let queue = pool.book.queue(session)?;
    let held = queue.held.keys().filter_map(|id| queue.get(session, *id));
    held.into_iter().find(|open| open.kind == PROMPT)
}

/// Whether a prompt is on its way to a session's agent, or has not come to its end there.
#[must_use]
pub fn is_prompted(pool: &Pool, session: SessionId, now: Timestamp) -> bool {
    let held = held_prompt(pool, session).is_some_and(|open| open.state != MessageState::InDoubt);
    // One whose time has not come keeps nobody busy, unless it is tried again.
    let comes = |open: &Open<'_>| open.attempts > 0 || open.not_before.is_none_or(|at| at <= now);
    held || waiting_prompt(pool, session).is_some_and(|open| comes(&open))
}

/// Its pane is known and takes input.
fn is_open(run: &Incarnation) -> bool {
    !run.dead && run.server.is_some() && run.pane.is_some()
}

/// Counts of a session's messages, or of all.
#[must_use]
pub fn counts(pool: &Pool, session: Option<SessionId>) -> QueueCounts {
    let mut counts = QueueCounts::default();
    let all = pool.book.queues().filter(|(of, _)| session.is_none_or(|session| *of == session));
    let one = session.and_then(|session| Some((session, pool.book.queue(session)?)));
    let queues: Box<dyn Iterator<Item = (SessionId, &book::Queue)>> =
        if session.is_some() { Box::new(one.into_iter()) } else { Box::new(all) };
    for (_, queue) in queues {
        counts.queued += queue.lanes.values().map(|lane| lane.waiting()).sum::<u64>();
        counts.dead += queue.dead.len() as u64;
        let doubts = queue.held_in(MessageState::InDoubt);
        counts.in_doubt += doubts;
        counts.claimed += queue.held.len() as u64 - doubts;
        let oldest = queue.oldest();
        counts.oldest_at = [counts.oldest_at, oldest].into_iter().flatten().min();
    }
    counts
}

/// Whether nothing of a session waits or is in flight.
#[must_use]
pub fn is_empty(pool: &Pool, session: SessionId) -> bool {
    pool.book.queue(session).is_none_or(|queue| queue.open() == 0)
}

/// What is given up when its time has run out, soonest first: not what is in flight then.
fn given_up(pool: &Pool) -> impl Iterator<Item = (Moment, Open<'_>)> {
    let limited = pool.book.expiries.running();
    let open = limited.filter_map(|(at, session, id)| Some((at, pool.open_message(session, id)?)));
    let is_begun = |open: &Open<'_>| open.state == MessageState::Queued && open.is_suspended;
    let waits = |open: &Open<'_>| matches!(open.state, MessageState::Queued | MessageState::InDoubt);
    open.filter(move |(_, open)| waits(open) && !is_begun(open))
}

/// What waits and whose time ran out.
#[must_use]
pub fn expired(pool: &Pool, now: Timestamp) -> Vec<Event> {
    let moment = clock::moment(&pool.clock, now);
    let due = given_up(pool).take_while(|(at, _)| *at <= moment);
    due.map(|(_, m)| moved(&m, MessageState::Expired, Some("its time ran out"), now)).collect()
}

/// The text with everything removed that could leave paste mode or act as a key: C0 controls but
/// line feed and tab, DEL and C1 controls. CR LF and CR become LF.
#[must_use]
pub fn printable(text: &str) -> String {
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    lines.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}
