//! From events to rows, and rows to the disk in one transaction. What queues a message is one row of
//! one table.

use pool::{Operation, OperationState, Pool};
use protocol::event::AgentEvent;
use protocol::message::STEPS_MAX;
use protocol::{
    Breaker, Event, Message, MessageId, MessageState, OpId, SessionId, Stamped, Step, Tag, Timestamp,
};
use redb::{Database, ReadableTable, WriteTransaction};

use crate::error::{RecordError, StoreError};
use crate::quarantine;
use crate::record::{seal, seal_event, seal_message, seal_state, split_message, unseal_state};
use crate::tables::{
    CLOCK_KEY, COPIED_KEY, NEXT_SESSION_KEY, SEQ_KEY, SERVER_KEY, STARTED_KEY, TIMELINE_KEY, Table,
    breaker_key, key_number, number_key, op_key,
};

/// What goes into one commit.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    /// The state after the events.
    pub(crate) pool: &'a Pool,
    pub(crate) events: &'a [Stamped],
    /// By id.
    pub(crate) bodies: &'a [(MessageId, Vec<u8>)],
    /// The last sequence number that was trimmed from the journal.
    pub(crate) floor: u64,
}

/// Writes what the events change; durable when this returns `Ok`. redb's defaults are meant: immediate
/// durability, one phase.
pub(crate) fn commit(db: &Database, batch: Batch<'_>) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    write(&mut Tables::new(&transaction), batch)?;
    Ok(transaction.commit()?)
}

/// Whose database it is, in a transaction of its own.
pub(crate) fn belongs_to(db: &Database, timeline: u64) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    let mut tables = Tables::new(&transaction);
    tables.number(TIMELINE_KEY, timeline)?;
    tables.take(Table::Meta, COPIED_KEY)?;
    drop(tables);
    Ok(transaction.commit()?)
}

/// The same within a transaction.
pub(crate) fn write(tables: &mut Tables<'_>, batch: Batch<'_>) -> Result<(), StoreError> {
    let mut writing = Writing { tables, batch, rows: Vec::new() };
    for stamped in batch.events {
        writing.event(stamped)?;
    }
    // Each row once, as it is after all events.
    let mut rows = std::mem::take(&mut writing.rows);
    rows.sort_unstable();
    rows.dedup();
    rows.into_iter().try_for_each(|row| writing.row(row))
}

type WriteTable<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

/// The tables of a transaction, each opened when it is first needed.
pub(crate) struct Tables<'t> {
    transaction: &'t WriteTransaction,
    open: [Option<WriteTable<'t>>; Table::ALL.len()],
}

impl<'t> Tables<'t> {
    pub(crate) fn new(transaction: &'t WriteTransaction) -> Self {
        Self { transaction, open: [const { None }; Table::ALL.len()] }
    }

    pub(crate) fn get(&mut self, table: Table) -> Result<&mut WriteTable<'t>, StoreError> {
        match &mut self.open[table as usize] {
            Some(open) => Ok(open),
            closed => Ok(closed.insert(self.transaction.open_table(table.definition())?)),
        }
    }

    pub(crate) fn put(&mut self, table: Table, key: &[u8], record: &[u8]) -> Result<(), StoreError> {
        self.get(table)?.insert(key, record)?;
        Ok(())
    }

    pub(crate) fn remove(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        self.get(table)?.remove(key)?;
        Ok(())
    }

    /// Removes a row, and answers what it held.
    pub(crate) fn take(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.get(table)?.remove(key)?.map(|row| row.value().to_vec()))
    }

    pub(crate) fn number(&mut self, key: &[u8], n: u64) -> Result<(), StoreError> {
        self.put(Table::Meta, key, &seal(Table::Meta.name(), key, &[&number_key(n)]))
    }
}

/// A row that is written from the state after all events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Row<'a> {
    Seq,
    NextSession,
    Started,
    Clock,
    Server,
    Session(SessionId),
    Retired(Tag),
    Operation(&'a OpId),
    Breaker(SessionId, &'a str),
    Breakers(SessionId),
    Activity(SessionId),
    Notes(SessionId),
    Thought(SessionId),
    LostConversation(SessionId),
}

struct Writing<'w, 't, 'a> {
    tables: &'w mut Tables<'t>,
    batch: Batch<'a>,
    rows: Vec<Row<'a>>,
}

impl<'a> Writing<'_, '_, 'a> {
    /// Which rows an event touches. Every event is named, so that a new one cannot be forgotten.
    fn event(&mut self, stamped: &'a Stamped) -> Result<(), StoreError> {
        match &stamped.event {
            Event::MessageQueued(message) => return self.message_queued(stamped, message),
            Event::MessageChanged { id, .. } => self.message_changed(stamped, *id)?,
            Event::MessageForgotten { id, session } => self.message_forgotten(*id, *session)?,
            Event::PoolStarted { .. } => self.rows.push(Row::Started),
            Event::NextSession { .. } => self.rows.push(Row::NextSession),
            Event::ClockRead(_) => self.rows.push(Row::Clock),
            Event::TmuxServerChanged { .. } => self.rows.push(Row::Server),
            Event::SessionCreated(session) => {
                self.rows.extend([Row::NextSession, Row::Session(session.id)]);
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
            | Event::SessionParked { session, .. }
            | Event::SessionPolicyChanged { session, .. }
            | Event::BudgetChanged { session, .. }
            | Event::ConversationChanged { session, .. }
            | Event::SessionAccounted { session, .. }
            | Event::LockGranted { session, .. }
            | Event::LockReleased { session, .. }
            | Event::LockRevoked { session, .. }
            | Event::LockFed { session, .. }
            | Event::AgentStarted { session, .. } => self.rows.push(Row::Session(*session)),
            Event::SessionDeleted { session, .. } => {
                let session = *session;
                self.rows.extend([
                    Row::Session(session),
                    Row::Breakers(session),
                    Row::Activity(session),
                    Row::Notes(session),
                    Row::Thought(session),
                    Row::LostConversation(session),
                ]);
            }
            Event::Agent(event) => self.rows.extend(agents_row(event)),
            Event::TagRetired { tag, .. } | Event::TagForgotten(tag) => self.rows.push(Row::Retired(*tag)),
            Event::BreakerChanged { session, kind, .. } => self.rows.push(Row::Breaker(*session, kind)),
            Event::OperationDone { op, .. }
            | Event::OperationBegun { op, .. }
            | Event::OperationForgotten { op } => self.rows.push(Row::Operation(op)),
            Event::ForeignSeen { .. }
            | Event::ForeignGone { .. }
            | Event::GeneratorRegistered { .. }
            | Event::GeneratorEnded { .. }
            | Event::ReapStarted { .. }
            | Event::ReapFinished { .. }
            | Event::LimitExceeded { .. }
            | Event::LogResumed { .. }
            | Event::StaleFound { .. }
            | Event::WatcherConnected { .. }
            | Event::WatcherLost { .. } => {}
        }
        if stamped.event.is_journaled() { self.journal(stamped) } else { Ok(()) }
    }

    /// A row for a row: the last word on it.
    fn row(&mut self, row: Row<'_>) -> Result<(), StoreError> {
        let pool = self.batch.pool;
        match row {
            Row::Seq => self.tables.number(SEQ_KEY, pool.seq().0),
            Row::NextSession => self.tables.number(NEXT_SESSION_KEY, pool.next_session()),
            Row::Started => {
                let (build, boot) = pool.started_by();
                let (epoch, build, boot) = (pool.epoch(), build.to_owned(), boot.to_owned());
                self.set(Table::Meta, STARTED_KEY, Some(Event::PoolStarted { epoch, build, boot }))
            }
            Row::Clock => {
                let clock = Event::ClockRead(pool.clock().clone());
                self.set(Table::Meta, CLOCK_KEY, Some(clock))
            }
            Row::Server => {
                let server = pool.server();
                self.set(Table::Meta, SERVER_KEY, Some(Event::TmuxServerChanged { server }))
            }
            Row::Session(id) => {
                let session = pool.session(id).cloned().map(Box::new);
                self.set(Table::Sessions, &number_key(id.0), session.map(Event::SessionCreated))
            }
            Row::Retired(tag) => {
                let retired = pool.retired(tag).map(|session| Event::TagRetired { tag, session });
                self.set(Table::Retired, &tag.0, retired)
            }
            Row::Operation(op) => {
                let operation = pool.operation(op).map(|operation| remembered(op, operation));
                self.set(Table::Operations, &op_key(op), operation)
            }
            Row::Breaker(session, kind) => {
                let breaker = pool.breaker(session, kind).map(|breaker| failing(session, kind, breaker));
                self.set(Table::Breakers, &breaker_key(session, kind), breaker)
            }
            Row::Breakers(session) => self.no_breakers(session),
            Row::Activity(session) => {
                let activity = pool.activity(session).cloned();
                let event =
                    activity.map(|activity| AgentEvent::ActivityChanged { session, activity, turned: false });
                self.set(Table::Activities, &number_key(session.0), event.map(Event::Agent))
            }
            Row::Notes(session) => {
                let event =
                    pool.notes(session).cloned().map(|notes| AgentEvent::AgentNoted { session, notes });
                self.set(Table::Notes, &number_key(session.0), event.map(Event::Agent))
            }
            Row::Thought(session) => {
                let thought = pool.thought(session).cloned();
                let event = thought.map(|thought| AgentEvent::ThoughtPublished { session, thought });
                self.set(Table::Thoughts, &number_key(session.0), event.map(Event::Agent))
            }
            Row::LostConversation(session) => {
                let lost = pool.lost_conversation(session).map(str::to_owned);
                let event = lost.map(|conversation| AgentEvent::ConversationLost { session, conversation });
                self.set(Table::LostConversations, &number_key(session.0), event.map(Event::Agent))
            }
        }
    }

    /// The session's row is not written: its count and its time follow from the message's row.
    fn message_queued(&mut self, stamped: &Stamped, message: &Message) -> Result<(), StoreError> {
        let (id, bodies) = (message.id, self.batch.bodies);
        let at = bodies.binary_search_by_key(&id, |(of, _)| *of).map_err(|_| StoreError::NoBody(id))?;
        let key = number_key(id.0);
        self.tables.put(Table::Messages, &key, &seal_message(&key, stamped, &bodies[at].1)?)
    }

    fn message_changed(&mut self, stamped: &Stamped, id: MessageId) -> Result<(), StoreError> {
        let Event::MessageChanged { status, .. } = &stamped.event else { return Ok(()) };
        let key = number_key(id.0);
        let mut steps = self.steps(&key)?;
        // The queueing is the first step and always told; of the others the newest, and the last that says that its agent
        // has its text already: without that it would be typed again.
        while steps.len() + 1 >= STEPS_MAX {
            let is_suspended = |step: &Step| step.state == MessageState::Suspended;
            let is_last = is_suspended(&steps[0]) && !steps[1..].iter().any(is_suspended);
            steps.remove(usize::from(is_last));
        }
        steps.push(status.step());
        self.tables.put(Table::MessageStates, &key, &seal_state(&key, stamped, &steps)?)
    }

    /// The steps of a message so far, without its queueing.
    fn steps(&mut self, key: &[u8]) -> Result<Vec<Step>, StoreError> {
        let (record, why) = {
            let row = self.tables.get(Table::MessageStates)?.get(key)?;
            let Some(row) = row else { return Ok(Vec::new()) };
            match unseal_state(key, row.value()) {
                Ok((_, steps)) => return Ok(steps),
                Err(why) => (row.value().to_vec(), why.to_string()),
            }
        };
        quarantine::put(self.tables, Table::MessageStates.name(), key, (&record, &why))?;
        Ok(Vec::new())
    }

    /// Once a message's row is gone, its session's count and time no longer follow from it, and the
    /// journal has to hold its event itself.
    fn message_forgotten(&mut self, id: MessageId, session: SessionId) -> Result<(), StoreError> {
        let key = number_key(id.0);
        self.tables.remove(Table::MessageStates, &key)?;
        self.rows.extend([Row::Seq, Row::Session(session)]);
        let Some(record) = self.tables.take(Table::Messages, &key)? else { return Ok(()) };
        let Some(why) = keep_event(self.tables, (&key, &record), self.batch.floor)? else { return Ok(()) };
        quarantine::put(self.tables, Table::Messages.name(), &key, (&record, &why.to_string()))
    }

    fn no_breakers(&mut self, session: SessionId) -> Result<(), StoreError> {
        let breakers = self.tables.get(Table::Breakers)?;
        let (from, to) = (number_key(session.0), number_key(session.0.saturating_add(1)));
        let rows = breakers.range(from.as_slice()..to.as_slice())?;
        let keys = rows.map(|row| Ok(row?.0.value().to_vec())).collect::<Result<Vec<_>, StoreError>>()?;
        keys.iter().try_for_each(|key| self.tables.remove(Table::Breakers, key))
    }

    /// A session's environment is kept in its row alone, which goes when the session is removed: who is served from
    /// the journal never sees it.
    fn journal(&mut self, stamped: &Stamped) -> Result<(), StoreError> {
        let key = number_key(stamped.seq.0);
        let record = if let Event::SessionCreated(_) = &stamped.event {
            let mut shown = stamped.clone();
            pool::redacted::event(&mut shown.event);
            seal_event(Table::Journal, &key, &shown)?
        } else {
            seal_event(Table::Journal, &key, stamped)?
        };
        self.tables.put(Table::Journal, &key, &record)
    }

    /// What a row is now, or that it is gone. It says where the journal was when it was written.
    fn set(&mut self, table: Table, key: &[u8], event: Option<Event>) -> Result<(), StoreError> {
        let Some(event) = event else { return self.tables.remove(table, key) };
        let stamped = Stamped { seq: self.batch.pool.seq(), at: Timestamp(0), event };
        self.tables.put(table, key, &seal_event(table, key, &stamped)?)
    }
}

/// Puts the event of a message whose row goes into the journal, unless it was trimmed already; answers
/// what is wrong with the record where that is why it cannot.
pub(crate) fn keep_event(
    tables: &mut Tables<'_>,
    (key, record): (&[u8], &[u8]),
    floor: u64,
) -> Result<Option<RecordError>, StoreError> {
    match split_message(Table::Messages.name(), key, record) {
        Ok((event, _)) if key_number(key).is_some_and(|place| place > floor) => {
            tables.put(Table::Journal, key, &seal(Table::Journal.name(), key, &[event])).map(|()| None)
        }
        Ok(_) => Ok(None),
        Err(why) => Ok(Some(why)),
    }
}

fn remembered(op: &OpId, operation: &Operation) -> Event {
    let (op, digest, at) = (op.clone(), operation.digest, operation.at);
    match &operation.state {
        OperationState::Begun(session) => Event::OperationBegun { op, digest, session: *session, at },
        OperationState::Done(reply) => Event::OperationDone { op, digest, reply: reply.clone(), at },
    }
}

/// The row that a fact about an agent touches, if it is more than told.
fn agents_row<'a>(event: &AgentEvent) -> Option<Row<'a>> {
    match event {
        AgentEvent::ActivityChanged { session, .. } => Some(Row::Activity(*session)),
        AgentEvent::AgentNoted { session, .. } => Some(Row::Notes(*session)),
        AgentEvent::ThoughtPublished { session, .. } => Some(Row::Thought(*session)),
        AgentEvent::ConversationLost { session, .. } => Some(Row::LostConversation(*session)),
        AgentEvent::AskAnswered { .. } => None,
    }
}

fn failing(session: SessionId, kind: &str, breaker: &Breaker) -> Event {
    let turned = breaker.is_open();
    Event::BreakerChanged { session, kind: kind.to_owned(), breaker: breaker.clone(), turned }
}
