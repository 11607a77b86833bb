//! From events to rows, and rows to the disk in one transaction.

use std::collections::BTreeMap;

use pool::{Operation, OperationState, Pool};
use protocol::{Event, Message, MessageId, OpId, SessionId, Stamped, Tag, Timestamp};
use redb::Database;

use crate::Owners;
use crate::error::StoreError;
use crate::record::{seal, seal_event, seal_message};
use crate::tables::{NEXT_SESSION_KEY, SEQ_KEY, SERVER_KEY, STARTED_KEY, Table, number_key, op_key};

/// Rows to put (`Some`) and to remove (`None`), the last word on each.
pub(crate) type Changes = BTreeMap<Table, BTreeMap<Vec<u8>, Option<Vec<u8>>>>;

/// What these events change, taken from the state after them.
pub(crate) fn changes(
    pool: &Pool,
    events: &[Stamped],
    bodies: &[(MessageId, Vec<u8>)],
    owners: &mut Owners,
) -> Result<Changes, StoreError> {
    let mut touch = Touch { pool, bodies, owners, changes: Changes::new() };
    for stamped in events {
        touch.event(&stamped.event)?;
        if stamped.event.is_journaled() {
            let key = number_key(stamped.seq.0);
            touch.set(Table::Journal, &key, Some(seal_event(Table::Journal, &key, stamped)?));
            touch.number(SEQ_KEY, pool.seq().0);
        }
    }
    Ok(touch.changes)
}

/// Writes the changes; durable when this returns `Ok`. redb's defaults are meant: immediate
/// durability, one phase.
pub(crate) fn write(db: &Database, changes: Changes) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let transaction = db.begin_write()?;
    for (table, rows) in changes {
        let mut table = transaction.open_table(table.definition())?;
        for (key, row) in rows {
            match row {
                Some(row) => drop(table.insert(key.as_slice(), row.as_slice())?),
                None => drop(table.remove(key.as_slice())?),
            }
        }
    }
    Ok(transaction.commit()?)
}

struct Touch<'a> {
    pool: &'a Pool,
    bodies: &'a [(MessageId, Vec<u8>)],
    owners: &'a mut Owners,
    changes: Changes,
}

impl Touch<'_> {
    /// Which rows an event touches. Every event is named, so that a new one cannot be forgotten.
    fn event(&mut self, event: &Event) -> Result<(), StoreError> {
        match event {
            Event::PoolStarted { .. } => self.started(),
            Event::NextSession { .. } => self.next_session(),
            Event::TmuxServerChanged { .. } => self.server(),
            Event::SessionCreated(session) => {
                self.next_session()?;
                self.session(session.id)
            }
            Event::SessionStarting { session, .. }
            | Event::SessionLive { session, .. }
            | Event::SessionRenamed { session, .. }
            | Event::SessionLabelled { session, .. }
            | Event::SessionDraining { session, .. }
            | Event::SessionStopped { session, .. }
            | Event::SessionLost { session, .. }
            | Event::SessionFailed { session, .. }
            | Event::SessionObserved { session, .. }
            | Event::SessionPlaced { session, .. }
            | Event::AgentStarted { session, .. } => self.session(*session),
            Event::SessionDeleted { session, .. } => self.session_deleted(*session),
            Event::TagRetired { tag, .. } => self.retired(*tag),
            Event::MessageQueued(message) => self.message_queued(message),
            Event::MessageChanged { id, .. } => self.message_state(*id),
            Event::MessageForgotten { id } => self.message_gone(*id),
            Event::OperationDone { op, .. }
            | Event::OperationBegun { op, .. }
            | Event::OperationForgotten { op } => self.operation(op),
            Event::ForeignSeen { .. }
            | Event::ForeignGone { .. }
            | Event::ReapStarted { .. }
            | Event::ReapFinished { .. }
            | Event::WatcherConnected { .. }
            | Event::WatcherLost { .. } => Ok(()),
        }
    }
}

/// One function for each kind of row: what it is now, or that it is gone.
impl Touch<'_> {
    fn started(&mut self) -> Result<(), StoreError> {
        let (build, boot) = self.pool.started_by();
        let (epoch, build, boot) = (self.pool.epoch(), build.to_owned(), boot.to_owned());
        self.row(Table::Meta, STARTED_KEY, Some(Event::PoolStarted { epoch, build, boot }))
    }

    fn next_session(&mut self) -> Result<(), StoreError> {
        self.number(NEXT_SESSION_KEY, self.pool.next_session());
        Ok(())
    }

    fn server(&mut self) -> Result<(), StoreError> {
        let server = self.pool.server();
        self.row(Table::Meta, SERVER_KEY, Some(Event::TmuxServerChanged { server }))
    }

    fn session(&mut self, id: SessionId) -> Result<(), StoreError> {
        let session = self.pool.session(id).cloned().map(Box::new);
        self.row(Table::Sessions, &number_key(id.0), session.map(Event::SessionCreated))
    }

    fn session_deleted(&mut self, id: SessionId) -> Result<(), StoreError> {
        let messages = self.owners.iter().filter(|(_, owner)| **owner == id).map(|(message, _)| *message);
        for message in messages.collect::<Vec<_>>() {
            self.message_gone(message)?;
        }
        self.session(id)
    }

    fn retired(&mut self, tag: Tag) -> Result<(), StoreError> {
        let session = self.pool.retired(tag);
        self.row(Table::Retired, &tag.0, session.map(|session| Event::TagRetired { tag, session }))
    }

    /// The session's row is not written: its count and its time follow from the message's row.
    fn message_queued(&mut self, queued: &Message) -> Result<(), StoreError> {
        let (pool, bodies, id) = (self.pool, self.bodies, queued.id);
        let known = self.owners.insert(id, queued.session).is_some();
        let Some(message) = pool.message(id) else { return self.message_gone(id) };
        let body = bodies.iter().find(|(of, _)| *of == id).map(|(_, body)| body);
        let body = body.ok_or(StoreError::NoBody(id))?;
        let key = number_key(id.0);
        let event = self.stamped(message.created_at, Event::MessageQueued(Box::new(message.clone())));
        let record = seal_message(&key, &event, body)?;
        self.set(Table::Messages, &key, Some(record));
        if known { self.message_state(id) } else { Ok(()) }
    }

    fn message_state(&mut self, id: MessageId) -> Result<(), StoreError> {
        let key = number_key(id.0);
        let Some(message) = self.pool.message(id) else {
            self.set(Table::MessageStates, &key, None);
            return Ok(());
        };
        let event = self.stamped(message.changed_at, state_of(message));
        self.set(Table::MessageStates, &key, Some(seal_event(Table::MessageStates, &key, &event)?));
        Ok(())
    }

    /// Once a message's row is gone, its session's count and time no longer follow from it.
    fn message_gone(&mut self, id: MessageId) -> Result<(), StoreError> {
        if self.pool.message(id).is_some() {
            return Ok(());
        }
        let key = number_key(id.0);
        self.set(Table::Messages, &key, None);
        self.set(Table::MessageStates, &key, None);
        match self.owners.remove(&id) {
            Some(session) => self.session(session),
            None => Ok(()),
        }
    }

    fn operation(&mut self, op: &OpId) -> Result<(), StoreError> {
        let event = self.pool.operation(op).map(|operation| remembered(op, operation));
        self.row(Table::Operations, &op_key(op), event)
    }

    /// Sets a row to an event, once a commit: every further time the event is the same.
    fn row(&mut self, table: Table, key: &[u8], event: Option<Event>) -> Result<(), StoreError> {
        if self.changes.get(&table).is_some_and(|rows| rows.contains_key(key)) {
            return Ok(());
        }
        let record = event.map(|event| seal_event(table, key, &self.stamped(Timestamp(0), event)));
        self.set(table, key, record.transpose()?);
        Ok(())
    }

    fn number(&mut self, key: &[u8], n: u64) {
        self.set(Table::Meta, key, Some(seal(Table::Meta, key, &number_key(n))));
    }

    fn set(&mut self, table: Table, key: &[u8], record: Option<Vec<u8>>) {
        self.changes.entry(table).or_default().insert(key.to_vec(), record);
    }

    /// A row says where the journal was when it was written.
    fn stamped(&self, at: Timestamp, event: Event) -> Stamped {
        Stamped { seq: self.pool.seq(), at, event }
    }
}

/// The change that makes a message what it is now.
pub(crate) fn state_of(message: &Message) -> Event {
    Event::MessageChanged {
        id: message.id,
        session: message.session,
        state: message.state,
        token: message.token,
        attempts: message.attempts,
        reason: message.reason.clone(),
    }
}

fn remembered(op: &OpId, operation: &Operation) -> Event {
    let (op, digest, at) = (op.clone(), operation.digest, operation.at);
    match &operation.state {
        OperationState::Begun(session) => Event::OperationBegun { op, digest, session: *session, at },
        OperationState::Done(reply) => Event::OperationDone { op, digest, reply: reply.clone(), at },
    }
}
