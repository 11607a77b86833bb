//! All queues as they are kept in memory, and the fold of the events about messages. Bodies, keys,
//! reasons and results are on disk only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{
    Breaker, Holder, Message, MessageId, MessageState, MessageStatus, OpId, SessionId, Timestamp, Token,
};

use super::expiry::Expiries;
use super::known::{Known, Recent, key_hash, op_hash};
use super::lane::Lane;
use super::slot::{Place, Slot};
use crate::clock::Moment;

/// All queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Book {
    queues: BTreeMap<SessionId, Queue>,
    pub(crate) expiries: Expiries,
    pub(crate) breakers: BTreeMap<(SessionId, String), Breaker>,
    known: Known,
    recent: Recent,
    open: u64,
    bytes: u64,
}

/// The queue of one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) lanes: BTreeMap<Arc<str>, Lane>,
    pub(crate) held: BTreeMap<MessageId, Held>,
    /// Those that wait for another attempt.
    tried: BTreeMap<MessageId, Tried>,
    /// Those whose agents have their text already, and are only told to go on.
    suspended: BTreeSet<MessageId>,
    /// Those that are over, by the time they were: dead, and all others.
    pub(crate) dead: Overs,
    pub(crate) over: Overs,
    /// When each of them came to be over.
    over_at: BTreeMap<MessageId, Timestamp>,
    pub(crate) bytes: u64,
}

/// Messages that are over, oldest end first.
pub(crate) type Overs = BTreeMap<(Timestamp, MessageId), Over>;

/// A message in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    kind: Arc<str>,
    state: MessageState,
    attempts: u32,
    token: Option<Token>,
    holder: Option<Holder>,
    since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tried {
    attempts: u32,
    not_before: Option<Timestamp>,
    since: Timestamp,
}

/// A message that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) at: Timestamp,
    pub(crate) state: MessageState,
    slot: Slot,
    priority: i8,
    kind: Arc<str>,
}

impl Over {
    pub(crate) fn id(&self) -> MessageId {
        self.slot.id()
    }

    pub(crate) fn created_at(&self) -> Timestamp {
        self.slot.created_at()
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn size(&self) -> u32 {
        self.slot.size()
    }
}

/// A message that is not over, as far as memory goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open<'a> {
    /// Which message.
    pub id: MessageId,
    /// Whose it is.
    pub session: SessionId,
    /// Its kind.
    pub kind: &'a str,
    /// Its priority.
    pub priority: i8,
    /// Bytes of its body.
    pub size: u32,
    /// When it was queued.
    pub created_at: Timestamp,
    /// Where it is.
    pub state: MessageState,
    /// How often it was given out.
    pub attempts: u32,
    /// The token under which it is held, while it is.
    pub token: Option<Token>,
    /// Who holds it.
    pub holder: Option<&'a Holder>,
    /// Not given out again before.
    pub not_before: Option<Timestamp>,
    /// Since when it is as it is, where it was given out before.
    pub since: Timestamp,
    /// Its agent has its text already, and is only told to go on.
    pub is_suspended: bool,
}

/// A message on its way from one place to another.
struct Moving {
    slot: Slot,
    priority: i8,
    kind: Arc<str>,
    was_open: bool,
}

impl Book {
    pub(crate) fn queue(&self, session: SessionId) -> Option<&Queue> {
        self.queues.get(&session)
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (SessionId, &Queue)> {
        self.queues.iter().map(|(session, queue)| (*session, queue))
    }

    /// Messages that are not over, and their bytes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.open, self.bytes)
    }

    pub(crate) fn keyed(&self, session: SessionId, key: &str) -> Option<MessageId> {
        self.known.get(key_hash(session, key))
    }

    pub(crate) fn sent_by(&self, op: &OpId) -> Option<MessageId> {
        let hash = op_hash(op);
        self.known.get(hash).or_else(|| self.recent.get(hash))
    }

    pub(crate) fn is_named(&self, id: MessageId) -> bool {
        self.known.names(id)
    }

    pub(crate) fn age_operations(&mut self) {
        self.recent.age();
    }

    /// `created`: when it was queued, as a moment of the pool.
    pub(crate) fn queued(&mut self, message: &Message, created: Moment) {
        let (id, session) = (message.id, message.session);
        if !self.recent.is_new(id) && self.queues.get(&session).is_some_and(|queue| queue.has(id)) {
            return;
        }
        let queue = self.queues.entry(session).or_default();
        let slot = Slot::new(id, message.size, message.created_at);
        queue.lane(&message.kind).put(message.priority, slot);
        queue.bytes += u64::from(message.size);
        (self.open, self.bytes) = (self.open + 1, self.bytes + u64::from(message.size));
        self.expiries.queued(message, created);
        if let Some(key) = &message.key {
            self.known.put(key_hash(session, key), id);
        }
        match &message.op {
            Some(op @ OpId::Named(_)) => self.known.put(op_hash(op), id),
            Some(op) => self.recent.put(op_hash(op), id),
            None => {}
        }
    }

    pub(crate) fn changed(&mut self, id: MessageId, session: SessionId, status: &MessageStatus) {
        let Some(queue) = self.queues.get_mut(&session) else { return };
        let Some(moving) = queue.take(id) else { return };
        let size = u64::from(moving.slot.size());
        if moving.was_open {
            (self.open, self.bytes, queue.bytes) = (self.open - 1, self.bytes - size, queue.bytes - size);
        }
        if !status.state.is_final() {
            (self.open, self.bytes, queue.bytes) = (self.open + 1, self.bytes + size, queue.bytes + size);
        }
        self.expiries.changed(id, status);
        if let Some(queue) = self.queues.get_mut(&session) {
            queue.put(moving, status);
        }
    }

    pub(crate) fn forgotten(&mut self, id: MessageId, session: SessionId) {
        let Some(queue) = self.queues.get_mut(&session) else { return };
        if let Some(moving) = queue.take(id)
            && moving.was_open
        {
            let size = u64::from(moving.slot.size());
            (self.open, self.bytes, queue.bytes) = (self.open - 1, self.bytes - size, queue.bytes - size);
        }
        queue.suspended.remove(&id);
        if queue.is_empty() {
            self.queues.remove(&session);
        }
        self.expiries.forgotten(id);
        self.known.forget(id);
    }

    /// A session is deleted; its messages were forgotten before.
    pub(crate) fn dropped(&mut self, session: SessionId) {
        let ids: Vec<_> = self.queues.get(&session).into_iter().flat_map(Queue::ids).collect();
        ids.into_iter().for_each(|id| self.forgotten(id, session));
        self.breakers.retain(|(of, _), _| *of != session);
    }

    pub(crate) fn breaker_changed(&mut self, session: SessionId, kind: &str, breaker: &Breaker) {
        let key = (session, kind.to_owned());
        if *breaker == Breaker::default() {
            self.breakers.remove(&key);
        } else {
            self.breakers.insert(key, breaker.clone());
        }
    }
}

impl Queue {
    fn lane(&mut self, kind: &str) -> &mut Lane {
        if !self.lanes.contains_key(kind) {
            self.lanes.insert(kind.into(), Lane::default());
        }
        self.lanes.get_mut(kind).unwrap_or_else(|| unreachable!("it was just put there"))
    }

    fn has(&self, id: MessageId) -> bool {
        self.lanes.values().any(|lane| lane.get(id).is_some()) || self.find_over(id).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.dead.is_empty() && self.over.is_empty()
    }

    /// Messages that are not over.
    pub(crate) fn open(&self) -> u64 {
        self.lanes.values().map(|lane| lane.waiting()).sum::<u64>() + self.held.len() as u64
    }

    fn ids(&self) -> impl Iterator<Item = MessageId> {
        let over = self.overs().map(Over::id);
        self.lanes.values().flat_map(Lane::iter).map(|(_, slot)| slot.id()).chain(over)
    }

    /// One that is over.
    pub(crate) fn find_over(&self, id: MessageId) -> Option<&Over> {
        let key = (*self.over_at.get(&id)?, id);
        self.over.get(&key).or_else(|| self.dead.get(&key))
    }

    /// All that are over: the dead first, each list oldest end first.
    pub(crate) fn overs(&self) -> impl DoubleEndedIterator<Item = &Over> {
        self.dead.values().chain(self.over.values())
    }

    fn take(&mut self, id: MessageId) -> Option<Moving> {
        self.held.remove(&id);
        self.tried.remove(&id);
        let found = self.lanes.iter_mut().find_map(|(kind, lane)| {
            let (priority, slot) = lane.take(id)?;
            Some((Moving { slot, priority, kind: Arc::clone(kind), was_open: true }, lane.is_empty()))
        });
        if let Some((moving, lane_is_empty)) = found {
            if lane_is_empty {
                self.lanes.remove(&moving.kind);
            }
            return Some(moving);
        }
        let key = (self.over_at.remove(&id)?, id);
        let over = self.over.remove(&key).or_else(|| self.dead.remove(&key))?;
        Some(Moving { slot: over.slot, priority: over.priority, kind: over.kind, was_open: false })
    }

    fn put(&mut self, moving: Moving, status: &MessageStatus) {
        let (id, since) = (moving.slot.id(), status.changed_at);
        if status.state == MessageState::Suspended {
            self.suspended.insert(id);
        } else if status.state.is_final() || status.is_reset() {
            self.suspended.remove(&id);
        }
        if status.state.is_final() {
            let over = Over {
                at: since,
                state: status.state,
                slot: moving.slot.at(Place::Gone),
                priority: moving.priority,
                kind: moving.kind,
            };
            let list = if status.state == MessageState::Dead { &mut self.dead } else { &mut self.over };
            list.insert((since, id), over);
            self.over_at.insert(id, since);
            return;
        }
        let waits = status.state == MessageState::Queued;
        let place = if waits { Place::Waiting } else { Place::InFlight };
        if !waits {
            let held = Held {
                kind: Arc::clone(&moving.kind),
                state: status.state,
                attempts: status.attempts,
                token: status.token,
                holder: status.holder.clone(),
                since,
            };
            self.held.insert(id, held);
        } else if status.attempts > 0 || status.not_before.is_some() {
            let tried = Tried { attempts: status.attempts, not_before: status.not_before, since };
            self.tried.insert(id, tried);
        }
        self.lane(&moving.kind).put(moving.priority, moving.slot.at(place));
    }

    /// One that is not over.
    pub(crate) fn get(&self, session: SessionId, id: MessageId) -> Option<Open<'_>> {
        if let Some(held) = self.held.get(&id) {
            let (kind, lane) = self.lanes.get_key_value(&held.kind)?;
            return Some(self.open_slot(session, kind, lane.get(id)?));
        }
        self.lanes.iter().find_map(|(kind, lane)| Some(self.open_slot(session, kind, lane.get(id)?)))
    }

    pub(crate) fn open_slot<'a>(
        &'a self,
        session: SessionId,
        kind: &'a str,
        (priority, slot): (i8, Slot),
    ) -> Open<'a> {
        let id = slot.id();
        let (held, tried) = (self.held.get(&id), self.tried.get(&id));
        Open {
            id,
            session,
            kind,
            priority,
            size: slot.size(),
            created_at: slot.created_at(),
            state: held.map_or(MessageState::Queued, |held| held.state),
            attempts: held.map(|held| held.attempts).or(tried.map(|tried| tried.attempts)).unwrap_or(0),
            token: held.and_then(|held| held.token),
            holder: held.and_then(|held| held.holder.as_ref()),
            not_before: tried.and_then(|tried| tried.not_before),
            since: held
                .map(|held| held.since)
                .or(tried.map(|tried| tried.since))
                .unwrap_or(slot.created_at()),
            is_suspended: self.suspended.contains(&id),
        }
    }

    /// The message of a lane that is next: one whose agent is at it comes before all others, whatever their priority.
    pub(crate) fn next_in(&self, lane: &Lane) -> Option<(i8, Slot)> {
        let waits = |(_, slot): &(i8, Slot)| slot.place() == Place::Waiting;
        let begun = self.suspended.iter().filter_map(|id| lane.get(*id)).find(waits);
        begun.or_else(|| lane.iter().find(waits))
    }

    /// How many are in flight in this way.
    pub(crate) fn held_in(&self, state: MessageState) -> u64 {
        self.held.values().filter(|held| held.state == state).count() as u64
    }

    /// When the first of those that wait was queued.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.lanes.values().filter_map(Lane::oldest).min()
    }

    /// When those that wait for another attempt may be given out.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = Timestamp> {
        self.tried.values().filter_map(|tried| tried.not_before)
    }
}
