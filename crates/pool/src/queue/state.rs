//! The messages of all queues as they are in memory, and the fold of the events about messages. Bodies, keys,
//! reasons and results are on disk only.

use std::collections::BTreeMap;

use protocol::{Breaker, Message, MessageId, MessageStatus, OpId, PROMPT, Seq, SessionId, Timestamp};

use crate::clock::Moment;
use crate::queue::entry::QueueEntry;
use crate::queue::expiry_index::ExpiryIndex;
use crate::queue::idempotency_index::{IdempotencyIndex, RecentOperations, key_hash, op_hash};
use crate::queue::session_queue::{MovingMessage, SessionQueue};

/// The queues of all sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueueState {
    sessions: BTreeMap<SessionId, SessionQueue>,
    expiries: ExpiryIndex,
    breakers: BTreeMap<(SessionId, String), Breaker>,
    idempotency: IdempotencyIndex,
    recent: RecentOperations,
    pending: u64,
    bytes: u64,
}

impl QueueState {
    pub(crate) fn queue(&self, session: SessionId) -> Option<&SessionQueue> {
        self.sessions.get(&session)
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (SessionId, &SessionQueue)> {
        self.sessions.iter().map(|(session, queue)| (*session, queue))
    }

    /// Number and bytes of all pending messages.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.pending, self.bytes)
    }

    /// The message that this key of a session's queue may belong to.
    pub(crate) fn by_key(&self, session: SessionId, key: &str) -> Option<MessageId> {
        self.idempotency.get(key_hash(session, key))
    }

    /// The message that this operation may have queued.
    pub(crate) fn by_operation(&self, op: &OpId) -> Option<MessageId> {
        let hash = op_hash(op);
        self.idempotency.get(hash).or_else(|| self.recent.get(hash))
    }

    /// True if a message has an idempotency key or an operation id that a user chose.
    pub(crate) fn is_named(&self, id: MessageId) -> bool {
        self.idempotency.names(id)
    }

    pub(crate) fn age_operations(&mut self) {
        self.recent.age();
    }

    /// Pending messages whose time to live runs, soonest end first.
    pub(crate) fn expiring(&self) -> impl Iterator<Item = (Moment, SessionId, MessageId)> {
        self.expiries.running()
    }

    /// The failures of a kind of a session's messages.
    pub(crate) fn breaker(&self, session: SessionId, kind: &str) -> Option<&Breaker> {
        // The key owns its text; a look-up that allocates is rare, as most pools have no breaker.
        if self.breakers.is_empty() {
            return None;
        }
        self.breakers.get(&(session, kind.to_owned()))
    }

    /// All kinds with failures, by session and kind.
    pub(crate) fn breakers(&self, from: SessionId) -> impl Iterator<Item = (SessionId, &str, &Breaker)> {
        let all = self.breakers.range((from, String::new())..);
        all.map(|((session, kind), breaker)| (*session, kind.as_str(), breaker))
    }

    /// Applies `MessageQueued`. `created` is the moment at which the message was queued.
    pub(crate) fn queued(&mut self, message: &Message, created: Moment) {
        let (id, session) = (message.id, message.session);
        if !self.recent.is_new(id) && self.sessions.get(&session).is_some_and(|queue| queue.has(id)) {
            return;
        }
        let queue = self.sessions.entry(session).or_default();
        let entry = QueueEntry::new(id, message.size, message.created_at);
        queue.add(&message.kind, message.in_doubt, (message.priority, entry));
        (self.pending, self.bytes) = (self.pending + 1, self.bytes + u64::from(message.size));
        self.expiries.queued(message, created);
        if let Some(key) = &message.key {
            self.idempotency.put(key_hash(session, key), id);
        }
        match &message.op {
            Some(op @ OpId::Named(_)) => self.idempotency.put(op_hash(op), id),
            Some(op) => self.recent.put(op_hash(op), id),
            None => {}
        }
    }

    /// Applies `MessageChanged`; `change` is its number.
    pub(crate) fn changed(
        &mut self,
        (id, session): (MessageId, SessionId),
        status: &MessageStatus,
        change: Seq,
    ) {
        let Some(queue) = self.sessions.get_mut(&session) else { return };
        let Some(moving) = queue.take(id) else { return };
        let size = u64::from(moving.size());
        if moving.was_pending() {
            (self.pending, self.bytes) = (self.pending - 1, self.bytes - size);
        }
        if !status.state.is_final() {
            (self.pending, self.bytes) = (self.pending + 1, self.bytes + size);
        }
        self.expiries.changed(id, status);
        queue.put(moving, status, change);
    }

    /// Applies `MessageForgotten`.
    pub(crate) fn forgotten(&mut self, id: MessageId, session: SessionId) {
        let Some(queue) = self.sessions.get_mut(&session) else { return };
        if let Some(moving) = queue.forget(id).filter(MovingMessage::was_pending) {
            (self.pending, self.bytes) = (self.pending - 1, self.bytes - u64::from(moving.size()));
        }
        if queue.is_empty() {
            self.sessions.remove(&session);
        }
        self.expiries.forgotten(id);
        self.idempotency.forget(id);
    }

    /// Follows the end of a person's lock, which held the prompts of a session up on purpose.
    pub(crate) fn lock_ended(&mut self, session: SessionId, at: (Seq, Timestamp)) {
        self.sessions.get_mut(&session).into_iter().for_each(|queue| queue.restart_stall_clock(PROMPT, at));
    }

    /// Applies `SessionDeleted`: the session's messages were forgotten before.
    pub(crate) fn session_deleted(&mut self, session: SessionId) {
        let ids: Vec<_> = self.sessions.get(&session).into_iter().flat_map(SessionQueue::ids).collect();
        ids.into_iter().for_each(|id| self.forgotten(id, session));
        self.breakers.retain(|(of, _), _| *of != session);
    }

    /// Applies `BreakerChanged`.
    pub(crate) fn breaker_changed(&mut self, session: SessionId, kind: &str, breaker: &Breaker) {
        let key = (session, kind.to_owned());
        if *breaker == Breaker::default() {
            self.breakers.remove(&key);
        } else {
            self.breakers.insert(key, breaker.clone());
        }
    }

    /// Applies `ClockRead`: `moment` maps times of the record by the new reading.
    pub(crate) fn clock_read(&mut self, moment: impl Fn(Timestamp) -> Moment) {
        self.expiries.clock_read(moment);
    }
}
