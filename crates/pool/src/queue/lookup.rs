//! Look-ups of messages in the state.

use protocol::reply::QueueCounts;
use protocol::{Breaker, MessageId, MessageState, OpId, PROMPT, SessionId, Timestamp};

use crate::pool::Pool;
use crate::queue::pending::PendingMessage;

impl Pool {
    pub fn pending_message(&self, session: SessionId, id: MessageId) -> Option<PendingMessage<'_>> {
        self.queues.queue(session)?.get(session, id)
    }

    /// A pending message of any session.
    pub fn find_pending(&self, id: MessageId) -> Option<PendingMessage<'_>> {
        self.queues.queues().find_map(|(session, queue)| queue.get(session, id))
    }

    /// A message of any session that is in flight or in doubt.
    pub fn find_held(&self, id: MessageId) -> Option<PendingMessage<'_>> {
        let holding = self.queues.queues().find(|(_, queue)| queue.is_held(id));
        holding.and_then(|(session, queue)| queue.get(session, id))
    }

    /// All pending messages of a session; those of one kind in the order in which they are worked.
    pub fn pending_messages_of(&self, session: SessionId) -> impl Iterator<Item = PendingMessage<'_>> {
        let queue = self.queues.queue(session).into_iter();
        let kinds =
            queue.flat_map(|queue| queue.kinds().map(move |(kind, messages)| (queue, kind, messages)));
        kinds.flat_map(move |(queue, kind, messages)| {
            messages.iter().map(move |entry| queue.pending_message(session, kind, entry))
        })
    }

    /// All messages in flight or in doubt.
    pub fn held_messages(&self) -> impl Iterator<Item = PendingMessage<'_>> {
        self.queues.queues().flat_map(|(session, queue)| queue.held(session))
    }

    /// The finished messages of a session: id, state, kind, time of the end. Dead ones first; oldest end
    /// first.
    pub fn finished_messages_of(
        &self,
        session: SessionId,
    ) -> impl DoubleEndedIterator<Item = (MessageId, MessageState, &str, Timestamp)> {
        let all = self.queues.queue(session).into_iter().flat_map(|queue| queue.all_finished());
        all.map(|message| (message.id(), message.state, message.kind(), message.at))
    }

    /// The session and state of a message, pending or finished.
    pub fn find_message(&self, id: MessageId) -> Option<(SessionId, MessageState)> {
        let sessions = self.queues.queues().map(|(session, _)| session);
        sessions.filter_map(|session| Some((session, self.message_state(session, id)?))).next()
    }

    /// Size of a finished message's body in bytes.
    pub(crate) fn finished_size(&self, session: SessionId, id: MessageId) -> Option<u32> {
        Some(self.queues.queue(session)?.find_finished(id)?.size())
    }

    /// The kind of a message, pending or finished.
    pub fn message_kind(&self, session: SessionId, id: MessageId) -> Option<&str> {
        let queue = self.queues.queue(session)?;
        let pending = queue.get(session, id).map(|message| message.kind);
        pending.or_else(|| queue.find_finished(id).map(|message| message.kind()))
    }

    /// The state of a message, pending or finished.
    pub fn message_state(&self, session: SessionId, id: MessageId) -> Option<MessageState> {
        let queue = self.queues.queue(session)?;
        let pending = queue.get(session, id).map(|message| message.state);
        pending.or_else(|| queue.find_finished(id).map(|message| message.state))
    }

    /// When a message was queued, and whether it has a key or an operation id that a user chose.
    pub fn message_origin(&self, session: SessionId, id: MessageId) -> Option<(Timestamp, bool)> {
        let queue = self.queues.queue(session)?;
        let pending = queue.get(session, id).map(|message| message.created_at);
        let at = pending.or_else(|| queue.find_finished(id).map(|message| message.created_at()))?;
        Some((at, self.queues.is_named(id)))
    }

    /// The kinds of a session's queued messages: kind, number, time at which the oldest was queued.
    pub(crate) fn waiting_kinds(&self, session: SessionId) -> impl Iterator<Item = (&str, u64, Timestamp)> {
        let kinds = self.queues.queue(session).into_iter().flat_map(|queue| queue.kinds());
        kinds.filter_map(|(kind, messages)| Some((kind, messages.waiting(), messages.oldest()?.1)))
    }

    /// Number and bytes of a session's pending messages.
    pub fn queue_size(&self, session: SessionId) -> (u64, u64) {
        self.queues.queue(session).map_or((0, 0), |queue| (queue.pending(), queue.bytes()))
    }

    /// Number and bytes of all pending messages.
    pub fn queue_totals(&self) -> (u64, u64) {
        self.queues.totals()
    }

    /// The messages of a session, or of all sessions, in numbers.
    pub fn queue_counts(&self, session: Option<SessionId>) -> QueueCounts {
        let one = session.and_then(|session| self.queues.queue(session));
        let all = session.is_none().then(|| self.queues.queues().map(|(_, queue)| queue));
        let (mut counts, mut oldest) = (QueueCounts::default(), None);
        for queue in one.into_iter().chain(all.into_iter().flatten()) {
            let in_doubt = queue.in_doubt();
            counts.queued += queue.waiting();
            counts.dead += queue.dead().len() as u64;
            counts.in_doubt += in_doubt;
            counts.claimed += queue.held_count() - in_doubt;
            oldest = oldest.into_iter().chain(queue.oldest()).min();
        }
        counts.oldest_at = oldest.map(|(_, at)| at);
        counts
    }

    /// True if a session has no pending message.
    pub fn is_queue_empty(&self, session: SessionId) -> bool {
        self.queues.queue(session).is_none_or(|queue| queue.pending() == 0)
    }

    /// The message of a session to which this idempotency key may belong: only a hash of the key is in
    /// memory.
    pub fn message_by_key(&self, session: SessionId, key: &str) -> Option<MessageId> {
        self.queues.by_key(session, key)
    }

    /// The message that this operation may have queued: only a hash of the operation id is in memory.
    pub fn message_by_operation(&self, op: &OpId) -> Option<MessageId> {
        self.queues.by_operation(op)
    }

    /// Forgets the older generation of random operation ids. Called twice per period for which they are
    /// remembered.
    pub fn age_operations(&mut self) {
        self.queues.age_operations();
    }

    /// The failures of a kind of a session's messages, if any.
    pub fn breaker(&self, session: SessionId, kind: &str) -> Option<&Breaker> {
        self.queues.breaker(session, kind)
    }

    /// The kinds of a session's messages with failures.
    pub(crate) fn breakers_of(&self, session: SessionId) -> impl Iterator<Item = (&str, &Breaker)> {
        let its = self.queues.breakers(session).take_while(move |(of, ..)| *of == session);
        its.map(|(_, kind, breaker)| (kind, breaker))
    }

    /// All kinds with failures.
    pub fn breakers(&self) -> impl Iterator<Item = (SessionId, &str, &Breaker)> {
        self.queues.breakers(SessionId(0))
    }

    /// True if a message of this kind waits or is in flight.
    pub(crate) fn has_pending(&self, session: SessionId, kind: &str) -> bool {
        let messages = self.queues.queue(session).and_then(|queue| queue.kind(kind));
        messages.is_some_and(|(_, messages)| messages.pending() > 0)
    }

    /// The kinds of a session that are held back, of which something is left: a message that waits or is in flight,
    /// or a dead one.
    pub(crate) fn held_back_of(&self, session: SessionId) -> impl Iterator<Item = (&str, &Breaker)> {
        let has_dead = move |kind: &str| {
            let queue = self.queues.queue(session);
            queue.is_some_and(|queue| queue.dead().values().any(|message| message.kind() == kind))
        };
        let is_left = move |kind: &str| self.has_pending(session, kind) || has_dead(kind);
        self.breakers_of(session).filter(move |(kind, breaker)| breaker.is_open() && is_left(kind))
    }

    /// The kinds that are held back, of which something is left.
    pub fn held_back(&self) -> impl Iterator<Item = (SessionId, &str, &Breaker)> {
        let of = |id: SessionId| self.held_back_of(id).map(move |(kind, breaker)| (id, kind, breaker));
        self.sessions().flat_map(move |session| of(session.id))
    }

    pub fn prompts(&self, session: SessionId) -> PromptCounts {
        let prompts = self.queues.queue(session).and_then(|queue| queue.kind(PROMPT));
        prompts.map_or_else(PromptCounts::default, |(_, prompts)| PromptCounts {
            waiting: prompts.waiting(),
            held: prompts.is_held(),
            oldest: prompts.oldest().map(|(_, at)| at),
        })
    }
}

/// The prompts of a session in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromptCounts {
    /// Number of queued prompts.
    pub waiting: u64,
    /// True if a prompt is in flight or in doubt.
    pub held: bool,
    /// Time at which the oldest queued prompt was queued.
    pub oldest: Option<Timestamp>,
}
