//! The queue of one session: the pending messages by kind, and the finished ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{
    Holder, InDoubt, MessageId, MessageReason, MessageState, MessageStatus, Seq, SessionId, Timestamp, Token,
};

use crate::queue::entry::{EntryState, QueueEntry};
use crate::queue::kind_queue::KindQueue;
use crate::queue::pending::PendingMessage;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SessionQueue {
    kinds: BTreeMap<Arc<str>, KindQueue>,
    held: BTreeMap<MessageId, HeldMessage>,
    /// Queued messages that were attempted before, or have to wait for their time.
    retries: BTreeMap<MessageId, RetryState>,
    /// Prompts whose agents have the text already and are only told to continue.
    suspended: BTreeSet<MessageId>,
    dead: FinishedList,
    /// Finished messages in any other state than `dead`.
    finished: FinishedList,
    /// The change that finished each finished message.
    finished_by: BTreeMap<MessageId, Seq>,
    /// The messages that have a treatment of their own for a doubt.
    doubts: BTreeMap<MessageId, InDoubt>,
    moved_at: MovedTimes,
    bytes: u64,
}

/// For each kind, the change by which a message last moved, or was queued into an empty lane, with its time. After a
/// load the times may be earlier, because only the last change of each message is known; so two states are equal even
/// if these times differ.
#[derive(Debug, Clone, Default)]
struct MovedTimes(BTreeMap<Arc<str>, (Seq, Timestamp)>);

impl PartialEq for MovedTimes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for MovedTimes {}

impl MovedTimes {
    /// Keeps the change with the highest number. A load reports the changes in any order, and their times may
    /// decrease, as the clock may have been set back.
    fn note(&mut self, kind: &str, change: (Seq, Timestamp)) {
        match self.0.get_mut(kind) {
            Some(before) if before.0 > change.0 => {}
            Some(before) => *before = change,
            None => drop(self.0.insert(kind.into(), change)),
        }
    }
}

/// Messages in a final state, in the order in which they reached it.
pub(crate) type FinishedList = BTreeMap<(Seq, MessageId), FinishedMessage>;

/// A message in flight or in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HeldMessage {
    kind: Arc<str>,
    state: MessageState,
    attempts: u32,
    token: Option<Token>,
    holder: Option<Holder>,
    since: Timestamp,
    /// True if it is in doubt for a reason that only a person resolves.
    needs_person: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RetryState {
    attempts: u32,
    not_before: Option<Timestamp>,
    since: Timestamp,
}

/// A message in a final state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FinishedMessage {
    pub(crate) at: Timestamp,
    pub(crate) state: MessageState,
    entry: QueueEntry,
    priority: i8,
    kind: Arc<str>,
}

impl FinishedMessage {
    pub(crate) fn id(&self) -> MessageId {
        self.entry.id()
    }

    pub(crate) fn created_at(&self) -> Timestamp {
        self.entry.created_at()
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn size(&self) -> u32 {
        self.entry.size()
    }
}

/// A message taken out of its list, on the way to another one.
pub(super) struct MovingMessage {
    entry: QueueEntry,
    priority: i8,
    kind: Arc<str>,
    was_pending: bool,
}

impl MovingMessage {
    pub(super) fn size(&self) -> u32 {
        self.entry.size()
    }

    pub(super) fn was_pending(&self) -> bool {
        self.was_pending
    }
}

impl SessionQueue {
    /// The pending messages of one kind, with the kind's name.
    pub(crate) fn kind(&self, kind: &str) -> Option<(&str, &KindQueue)> {
        self.kinds.get_key_value(kind).map(|(kind, messages)| (kind.as_ref(), messages))
    }

    /// The pending messages by kind.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&str, &KindQueue)> {
        self.kinds.iter().map(|(kind, messages)| (kind.as_ref(), messages))
    }

    /// Adds a new message.
    pub(super) fn add(&mut self, kind: &str, in_doubt: Option<InDoubt>, (priority, entry): (i8, QueueEntry)) {
        self.bytes += u64::from(entry.size());
        if !self.kinds.contains_key(kind) {
            // The id of a message is the number of the event that queued it.
            self.moved_at.note(kind, (Seq(entry.id().0), entry.created_at()));
        }
        self.doubts.extend(in_doubt.map(|in_doubt| (entry.id(), in_doubt)));
        self.kind_mut(kind).put(priority, entry);
    }

    fn kind_mut(&mut self, kind: &str) -> &mut KindQueue {
        if !self.kinds.contains_key(kind) {
            self.kinds.insert(kind.into(), KindQueue::default());
        }
        self.kinds.get_mut(kind).unwrap_or_else(|| unreachable!("it was just put there"))
    }

    pub(super) fn has(&self, id: MessageId) -> bool {
        self.kinds.values().any(|kind| kind.get(id).is_some()) || self.find_finished(id).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.dead.is_empty() && self.finished.is_empty()
    }

    /// Number of pending messages.
    pub(crate) fn pending(&self) -> u64 {
        self.waiting() + self.held.len() as u64
    }

    /// Number of queued messages.
    pub(crate) fn waiting(&self) -> u64 {
        self.kinds.values().map(KindQueue::waiting).sum()
    }

    /// Bytes of the pending messages.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The messages in flight or in doubt.
    pub(crate) fn held(&self, session: SessionId) -> impl Iterator<Item = PendingMessage<'_>> {
        self.held.keys().filter_map(move |id| self.get(session, *id))
    }

    pub(crate) fn is_held(&self, id: MessageId) -> bool {
        self.held.contains_key(&id)
    }

    /// Number of messages in flight or in doubt.
    pub(crate) fn held_count(&self) -> u64 {
        self.held.len() as u64
    }

    /// Number of messages in doubt.
    pub(crate) fn in_doubt(&self) -> u64 {
        self.held.values().filter(|held| held.state == MessageState::InDoubt).count() as u64
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = MessageId> {
        let finished = self.all_finished().map(FinishedMessage::id);
        self.kinds.values().flat_map(KindQueue::iter).map(|(_, entry)| entry.id()).chain(finished)
    }

    pub(crate) fn find_finished(&self, id: MessageId) -> Option<&FinishedMessage> {
        let key = (*self.finished_by.get(&id)?, id);
        self.finished.get(&key).or_else(|| self.dead.get(&key))
    }

    /// All finished messages: the dead ones first, each list in the order of their ends.
    pub(crate) fn all_finished(&self) -> impl DoubleEndedIterator<Item = &FinishedMessage> {
        self.dead.values().chain(self.finished.values())
    }

    pub(crate) fn dead(&self) -> &FinishedList {
        &self.dead
    }

    /// The finished messages except for the dead ones.
    pub(crate) fn finished(&self) -> &FinishedList {
        &self.finished
    }

    /// Takes a message out of its list.
    pub(super) fn take(&mut self, id: MessageId) -> Option<MovingMessage> {
        self.held.remove(&id);
        self.retries.remove(&id);
        let found = self.kinds.iter_mut().find_map(|(kind, messages)| {
            let (priority, entry) = messages.take(id)?;
            let moving = MovingMessage { entry, priority, kind: Arc::clone(kind), was_pending: true };
            Some((moving, messages.is_empty()))
        });
        if let Some((moving, kind_is_empty)) = found {
            if kind_is_empty {
                self.kinds.remove(&moving.kind);
            }
            self.bytes -= u64::from(moving.size());
            return Some(moving);
        }
        let key = (self.finished_by.remove(&id)?, id);
        let finished = self.finished.remove(&key).or_else(|| self.dead.remove(&key))?;
        let FinishedMessage { entry, priority, kind, .. } = finished;
        Some(MovingMessage { entry, priority, kind, was_pending: false })
    }

    /// Takes a message out for good.
    pub(super) fn forget(&mut self, id: MessageId) -> Option<MovingMessage> {
        self.suspended.remove(&id);
        self.doubts.remove(&id);
        let ended_by = self.finished_by.get(&id).copied();
        let moving = self.take(id)?;
        let newest = self.moved_at.0.get(&moving.kind).map(|(change, _)| *change);
        if !self.kinds.contains_key(&moving.kind) && (ended_by.is_none() || newest <= ended_by) {
            self.moved_at.0.remove(&moving.kind);
        }
        Some(moving)
    }

    /// The time at which messages of a kind last moved, or were queued while there were none.
    pub(crate) fn moved_at(&self, kind: &str) -> Option<Timestamp> {
        self.moved_at.0.get(kind).map(|(_, at)| *at)
    }

    /// Restarts the standstill time of a kind, because what held it back on purpose has ended.
    pub(super) fn restart_stall_clock(&mut self, kind: &str, until: (Seq, Timestamp)) {
        if self.kinds.contains_key(kind) {
            self.moved_at.note(kind, until);
        }
    }

    /// Puts a message into the list of its new status; `change` is the number of the event.
    pub(super) fn put(&mut self, moving: MovingMessage, status: &MessageStatus, change: Seq) {
        let (id, since) = (moving.entry.id(), status.changed_at);
        if is_progress(status) {
            self.moved_at.note(&moving.kind, (change, since));
        }
        if status.state == MessageState::Suspended {
            self.suspended.insert(id);
        } else if status.state.is_final() || status.is_unattempted() {
            self.suspended.remove(&id);
        }
        if status.state.is_final() {
            let finished = FinishedMessage {
                at: since,
                state: status.state,
                entry: moving.entry.with_state(EntryState::Removed),
                priority: moving.priority,
                kind: moving.kind,
            };
            let is_dead = status.state == MessageState::Dead;
            let list = if is_dead { &mut self.dead } else { &mut self.finished };
            list.insert((change, id), finished);
            self.finished_by.insert(id, change);
            return;
        }
        self.bytes += u64::from(moving.size());
        let waits = status.state == MessageState::Queued;
        let state = if waits { EntryState::Waiting } else { EntryState::InFlight };
        if !waits {
            let held = HeldMessage {
                kind: Arc::clone(&moving.kind),
                state: status.state,
                attempts: status.attempts,
                token: status.token,
                holder: status.holder.clone(),
                since,
                needs_person: status.reason.as_ref().is_some_and(MessageReason::needs_person),
            };
            self.held.insert(id, held);
        } else if status.attempts > 0 || status.not_before.is_some() {
            let retry = RetryState { attempts: status.attempts, not_before: status.not_before, since };
            self.retries.insert(id, retry);
        }
        self.kind_mut(&moving.kind).put(moving.priority, moving.entry.with_state(state));
    }

    pub(crate) fn get(&self, session: SessionId, id: MessageId) -> Option<PendingMessage<'_>> {
        if let Some(held) = self.held.get(&id) {
            let (kind, messages) = self.kinds.get_key_value(&held.kind)?;
            return Some(self.pending_message(session, kind, messages.get(id)?));
        }
        let mut kinds = self.kinds.iter();
        kinds.find_map(|(kind, messages)| Some(self.pending_message(session, kind, messages.get(id)?)))
    }

    pub(crate) fn pending_message<'a>(
        &'a self,
        session: SessionId,
        kind: &'a str,
        (priority, entry): (i8, QueueEntry),
    ) -> PendingMessage<'a> {
        let id = entry.id();
        let (held, retry) = (self.held.get(&id), self.retries.get(&id));
        PendingMessage {
            id,
            session,
            kind,
            priority,
            size: entry.size(),
            created_at: entry.created_at(),
            state: held.map_or(MessageState::Queued, |held| held.state),
            attempts: held.map(|held| held.attempts).or(retry.map(|retry| retry.attempts)).unwrap_or(0),
            token: held.and_then(|held| held.token),
            holder: held.and_then(|held| held.holder.as_ref()),
            not_before: retry.and_then(|retry| retry.not_before),
            since: held
                .map(|held| held.since)
                .or(retry.map(|retry| retry.since))
                .unwrap_or(entry.created_at()),
            is_suspended: self.suspended.contains(&id),
            in_doubt: self.doubts.get(&id).copied(),
            needs_person: held.is_some_and(|held| held.needs_person),
        }
    }

    /// Returns the next message of a kind. Suspended messages come first, whatever the priorities; among the others,
    /// only those up to `newest` count.
    pub(crate) fn next_in(
        &self,
        messages: &KindQueue,
        newest: Option<MessageId>,
    ) -> Option<(i8, QueueEntry)> {
        let waits = |(_, entry): &(i8, QueueEntry)| entry.state() == EntryState::Waiting;
        let is_bounded = |(_, entry): &(i8, QueueEntry)| newest.is_none_or(|newest| entry.id() <= newest);
        let begun = self.suspended.iter().filter_map(|id| messages.get(*id)).find(waits);
        begun.or_else(|| messages.iter().find(|message| waits(message) && is_bounded(message)))
    }

    /// The oldest queued message, and the time at which it was queued.
    pub(crate) fn oldest(&self) -> Option<(MessageId, Timestamp)> {
        self.kinds.values().filter_map(KindQueue::oldest).min()
    }

    /// Times before which messages are not attempted again.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = Timestamp> {
        self.retries.values().filter_map(|retry| retry.not_before)
    }
}

/// True if this change is progress: the message is claimed, typed or final, an attempt has ended, or a person started
/// it anew.
fn is_progress(status: &MessageStatus) -> bool {
    use MessageState::{Accepted, Claimed, InDoubt, Queued, Revoking, Suspended, Typed, Typing};
    match status.state {
        Queued => status.not_before.is_some() || status.is_reset(),
        // The begin of typing is no progress: it may be called off repeatedly.
        Typing | InDoubt | Revoking | Suspended => false,
        Claimed | Typed | Accepted => true,
        state => state.is_final(),
    }
}
