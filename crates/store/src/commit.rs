//! Commits a batch: maps events to rows, and writes the rows in one transaction. Queueing a message writes
//! one row of one table.

use pool::Pool;
use protocol::message::STEPS_MAX;
use protocol::{
    AgentEvent, Breaker, Event, Message, MessageId, MessageState, OpId, SessionId, Stamped, Step, Tag,
    Timestamp, variants,
};
use redb::{Database, ReadableTable};

use crate::error::{RecordError, StoreError};
use crate::quarantine;
use crate::record::{seal, seal_event, seal_message, seal_state, split_message, unseal_state};
use crate::tables::{
    CLOCK_KEY, COPIED_KEY, NEXT_SESSION_KEY, SEQ_KEY, SERVER_KEY, STARTED_KEY, TIMELINE_KEY, Table,
    breaker_key, key_number, number_key, op_key,
};
use crate::transaction::Tables;

/// The input of one commit.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    /// The state after the events.
    pub(crate) pool: &'a Pool,
    pub(crate) events: &'a [Stamped],
    /// Sorted by id.
    pub(crate) bodies: &'a [(MessageId, Vec<u8>)],
    /// Last sequence number trimmed from the journal.
    pub(crate) floor: u64,
}

/// Writes the rows that the events change; durable when this returns `Ok`. Relies on redb's defaults:
/// immediate durability, one-phase commit.
pub(crate) fn commit(db: &Database, batch: Batch<'_>) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    write(&mut Tables::new(&transaction), batch)?;
    Ok(transaction.commit()?)
}

/// Writes the timeline's id, and that the file is no unadopted copy, in a transaction of its own.
pub(crate) fn set_timeline(db: &Database, id: u64) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    let mut tables = Tables::new(&transaction);
    tables.put_number(TIMELINE_KEY, id)?;
    tables.remove(Table::Meta, COPIED_KEY)?;
    drop(tables);
    Ok(transaction.commit()?)
}

/// Writes the rows that the events change, within the caller's transaction.
pub(crate) fn write(tables: &mut Tables<'_>, batch: Batch<'_>) -> Result<(), StoreError> {
    let mut writer = BatchWriter { tables, batch, rows: Vec::new() };
    for stamped in batch.events {
        writer.event(stamped)?;
    }
    // Each changed row is written once, with its state after all events.
    let mut rows = std::mem::take(&mut writer.rows);
    rows.sort_unstable();
    rows.dedup();
    rows.into_iter().try_for_each(|row| writer.row(row))
}

/// A row whose content is taken from the pool after all events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DirtyRow<'a> {
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

struct BatchWriter<'w, 't, 'a> {
    tables: &'w mut Tables<'t>,
    batch: Batch<'a>,
    rows: Vec<DirtyRow<'a>>,
}

impl<'a> BatchWriter<'_, '_, 'a> {
    /// Writes an event to the journal and collects the rows it changes. Matches exhaustively, so that a new
    /// event does not compile until its rows are decided.
    fn event(&mut self, stamped: &'a Stamped) -> Result<(), StoreError> {
        match &stamped.event {
            Event::MessageQueued(message) => return self.message_queued(stamped, message),
            Event::MessageChanged { id, .. } => self.message_changed(stamped, *id)?,
            Event::MessageForgotten { id, session } => self.message_forgotten(*id, *session)?,
            Event::PoolStarted { .. } => self.rows.push(DirtyRow::Started),
            Event::NextSession { .. } => self.rows.push(DirtyRow::NextSession),
            Event::ClockRead(_) => self.rows.push(DirtyRow::Clock),
            Event::TmuxServerChanged { .. } => self.rows.push(DirtyRow::Server),
            Event::SessionCreated(session) => {
                self.rows.extend([DirtyRow::NextSession, DirtyRow::Session(session.id)]);
            }
            variants!(Event { session, .. }:
                SessionStarting SessionLive SessionRenamed SessionLabelled SessionDraining SessionStopped
                SessionLost SessionFailed SessionObserved SessionPlaced SessionParked SessionPolicyChanged
                BudgetChanged ConversationChanged LockGranted LockReleased LockRevoked LockUsedForSend
            )
            | Event::SessionAccounted(session, _)
            | Event::DrainDeadlineSet(session, _)
            | Event::GraceAsked(session, _)
            | Event::KeysPressed(session) => self.rows.push(DirtyRow::Session(*session)),
            Event::Lane(event) => self.rows.push(DirtyRow::Session(event.session())),
            Event::SessionDeleted { session, .. } => {
                let session = *session;
                self.rows.extend([
                    DirtyRow::Session(session),
                    DirtyRow::Breakers(session),
                    DirtyRow::Activity(session),
                    DirtyRow::Notes(session),
                    DirtyRow::Thought(session),
                    DirtyRow::LostConversation(session),
                ]);
            }
            Event::WorkerChanged(change) => self.rows.push(DirtyRow::Session(change.session)),
            Event::Agent(event) => self.rows.extend(agent_row(event)),
            Event::TagRetired { tag, .. } | Event::TagForgotten(tag) => {
                self.rows.push(DirtyRow::Retired(*tag));
            }
            Event::BreakerChanged { session, kind, .. } => self.rows.push(DirtyRow::Breaker(*session, kind)),
            Event::OperationDone { op, .. }
            | Event::OperationBegun { op, .. }
            | Event::OperationForgotten { op } => self.rows.push(DirtyRow::Operation(op)),
            variants!(Event:
                ForeignSeen ForeignGone GeneratorRegistered GeneratorEnded ReapStarted ReapFinished
                LimitExceeded LogResumed StaleFound WatcherConnected WatcherLost
            ) => {}
        }
        if stamped.event.is_journaled() { self.journal(stamped) } else { Ok(()) }
    }

    /// Writes a row from the pool, or removes it.
    fn row(&mut self, row: DirtyRow<'_>) -> Result<(), StoreError> {
        let pool = self.batch.pool;
        match row {
            DirtyRow::Seq => self.tables.put_number(SEQ_KEY, pool.seq().0),
            DirtyRow::NextSession => self.tables.put_number(NEXT_SESSION_KEY, pool.next_session()),
            DirtyRow::Started => {
                let (build, boot) = pool.started_by();
                let (epoch, build, boot) = (pool.epoch(), build.to_owned(), boot.to_owned());
                self.set(Table::Meta, STARTED_KEY, Some(Event::PoolStarted { epoch, build, boot }))
            }
            DirtyRow::Clock => {
                let clock = Event::ClockRead(pool.clock().clone());
                self.set(Table::Meta, CLOCK_KEY, Some(clock))
            }
            DirtyRow::Server => {
                let server = pool.server();
                self.set(Table::Meta, SERVER_KEY, Some(Event::TmuxServerChanged { server }))
            }
            DirtyRow::Session(id) => {
                let session = pool.session(id).cloned().map(Box::new);
                self.set(Table::Sessions, &number_key(id.0), session.map(Event::SessionCreated))
            }
            DirtyRow::Retired(tag) => {
                let retired = pool.retired(tag).map(|session| Event::TagRetired { tag, session });
                self.set(Table::Retired, &tag.0, retired)
            }
            DirtyRow::Operation(op) => {
                let operation = pool.operation(op).map(|operation| operation.event(op));
                self.set(Table::Operations, &op_key(op), operation)
            }
            DirtyRow::Breaker(session, kind) => {
                let breaker = pool.breaker(session, kind);
                let breaker = breaker.map(|breaker| breaker_changed(session, kind, breaker));
                self.set(Table::Breakers, &breaker_key(session, kind), breaker)
            }
            DirtyRow::Breakers(session) => self.remove_breakers(session),
            DirtyRow::Activity(session) => {
                let activity = pool.activity(session).cloned();
                let event =
                    activity.map(|activity| AgentEvent::ActivityChanged { session, activity, turned: false });
                self.set(Table::Activities, &number_key(session.0), event.map(Event::Agent))
            }
            DirtyRow::Notes(session) => {
                let event =
                    pool.notes(session).cloned().map(|notes| AgentEvent::AgentNoted { session, notes });
                self.set(Table::Notes, &number_key(session.0), event.map(Event::Agent))
            }
            DirtyRow::Thought(session) => {
                let thought = pool.thought(session).cloned();
                let event = thought.map(|thought| AgentEvent::ThoughtPublished { session, thought });
                self.set(Table::Thoughts, &number_key(session.0), event.map(Event::Agent))
            }
            DirtyRow::LostConversation(session) => {
                let lost = pool.lost_conversation(session).map(str::to_owned);
                let event = lost.map(|conversation| AgentEvent::ConversationLost { session, conversation });
                self.set(Table::LostConversations, &number_key(session.0), event.map(Event::Agent))
            }
        }
    }

    /// Writes the message's row only: the session's count of requests and time of activity are derived from
    /// it at load.
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
        // Keeps the newest steps, and the last one that shows that the agent already has the text: without
        // it, the text would be typed again. The first step, the queueing, is not stored but derived from the
        // message.
        while steps.len() + 1 >= STEPS_MAX {
            let is_suspended = |step: &Step| step.state == MessageState::Suspended;
            let is_last = is_suspended(&steps[0]) && !steps[1..].iter().any(is_suspended);
            steps.remove(usize::from(is_last));
        }
        steps.push(status.step());
        self.tables.put(Table::MessageStates, &key, &seal_state(&key, stamped, &steps)?)
    }

    /// Returns the stored steps of a message, without the first (the queueing). A damaged record goes to the
    /// quarantine.
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

    /// Removes a message. The session's row then has to hold the count and the time that were derived from
    /// the message, and the journal the event that queued it.
    fn message_forgotten(&mut self, id: MessageId, session: SessionId) -> Result<(), StoreError> {
        let key = number_key(id.0);
        self.tables.remove(Table::MessageStates, &key)?;
        self.rows.extend([DirtyRow::Seq, DirtyRow::Session(session)]);
        let Some(record) = self.tables.take(Table::Messages, &key)? else { return Ok(()) };
        let Some(why) = keep_event(self.tables, (&key, &record), self.batch.floor)? else { return Ok(()) };
        quarantine::put(self.tables, Table::Messages.name(), &key, (&record, &why.to_string()))
    }

    fn remove_breakers(&mut self, session: SessionId) -> Result<(), StoreError> {
        let breakers = self.tables.get(Table::Breakers)?;
        let (from, to) = (number_key(session.0), number_key(session.0.saturating_add(1)));
        let rows = breakers.range(from.as_slice()..to.as_slice())?;
        let keys = rows.map(|row| Ok(row?.0.value().to_vec())).collect::<Result<Vec<_>, StoreError>>()?;
        keys.iter().try_for_each(|key| self.tables.remove(Table::Breakers, key))
    }

    /// Writes an event to the journal, without a session's environment: that is stored in the session's row
    /// only, which goes with the session, and is never shown to subscribers.
    fn journal(&mut self, stamped: &Stamped) -> Result<(), StoreError> {
        let key = number_key(stamped.seq.0);
        let record = if let Event::SessionCreated(_) = &stamped.event {
            let mut redacted = stamped.clone();
            pool::redaction::event(&mut redacted.event);
            seal_event(Table::Journal, &key, &redacted)?
        } else {
            seal_event(Table::Journal, &key, stamped)?
        };
        self.tables.put(Table::Journal, &key, &record)
    }

    /// Writes a row, stamped with the current sequence number; removes it if there is no event.
    fn set(&mut self, table: Table, key: &[u8], event: Option<Event>) -> Result<(), StoreError> {
        let Some(event) = event else { return self.tables.remove(table, key) };
        let stamped = Stamped { seq: self.batch.pool.seq(), at: Timestamp(0), event };
        self.tables.put(table, key, &seal_event(table, key, &stamped)?)
    }
}

/// Moves the event of a removed message to the journal, unless it is already trimmed. Returns the damage of
/// the record if it cannot be moved.
pub(crate) fn keep_event(
    tables: &mut Tables<'_>,
    (key, record): (&[u8], &[u8]),
    floor: u64,
) -> Result<Option<RecordError>, StoreError> {
    match split_message(key, record) {
        Ok((event, _)) if key_number(key).is_some_and(|seq| seq > floor) => {
            tables.put(Table::Journal, key, &seal(Table::Journal.name(), key, &[event])).map(|()| None)
        }
        Ok(_) => Ok(None),
        Err(why) => Ok(Some(why)),
    }
}

/// Returns the row that an event about an agent changes, if any.
fn agent_row<'a>(event: &AgentEvent) -> Option<DirtyRow<'a>> {
    match event {
        AgentEvent::ActivityChanged { session, .. } => Some(DirtyRow::Activity(*session)),
        AgentEvent::AgentNoted { session, .. } => Some(DirtyRow::Notes(*session)),
        AgentEvent::ThoughtPublished { session, .. } => Some(DirtyRow::Thought(*session)),
        AgentEvent::ConversationLost { session, .. } => Some(DirtyRow::LostConversation(*session)),
        AgentEvent::AskAnswered { .. } => None,
    }
}

fn breaker_changed(session: SessionId, kind: &str, breaker: &Breaker) -> Event {
    let turned = breaker.is_open();
    Event::BreakerChanged { session, kind: kind.to_owned(), breaker: breaker.clone(), turned }
}
