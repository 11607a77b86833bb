//! From schema 1: messages with fewer facts, their states apart and without steps, and every queueing
//! a second time in the journal, and replies to sends apart. The journal begins anew: who comes from before
//! is given the state.

mod sends;

use protocol::frame::decode_record;
use protocol::message::{Message, MessageState, MessageStatus};
use protocol::{Event, MessageId, Seq, SessionId, Stamped, Timestamp, Token};
use redb::{ReadableTable, WriteTransaction};
use serde::Deserialize;

use super::{definition, new_journal};
use crate::commit::Tables;
use crate::error::{RecordError, StoreError};
use crate::quarantine;
use crate::record::{seal_message, seal_state, split_message, unseal};
use crate::tables::Table;
use sends::Sends;

const MESSAGES: &str = "messages-1";
const STATES: &str = "message-states-1";
const JOURNAL: &str = "journal-1";
/// Attempts of messages that did not say how many.
const ATTEMPTS: u32 = 5;

/// Rewrites the messages; the sessions are those of schema 2 already.
pub(super) fn migrate(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    messages(transaction, tables)?;
    orphans(transaction, tables)?;
    new_journal(transaction, tables, JOURNAL)?;
    for table in [MESSAGES, STATES] {
        transaction.delete_table(definition(table))?;
    }
    Ok(())
}

fn messages(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    let messages = transaction.open_table(definition(MESSAGES))?;
    let states = transaction.open_table(definition(STATES))?;
    let mut sends = Sends::read(tables)?;
    for row in messages.range::<&[u8]>(..)? {
        let (key, record) = row?;
        let (key, record) = (key.value(), record.value());
        let (mut queued, status, body) = match message(key, record) {
            Ok(found) => found,
            Err(why) => {
                quarantine::put(tables, MESSAGES, key, (record, &why.to_string()))?;
                continue;
            }
        };
        if let Event::MessageQueued(message) = &mut queued.event {
            sends.give(tables, message)?;
        }
        tables.put(Table::Messages, key, &seal_message(key, &queued, body)?)?;
        let status = match states.get(key)? {
            Some(row) => match state(key, row.value()) {
                Ok(status) => status,
                Err(why) => {
                    quarantine::put(tables, STATES, key, (row.value(), &why.to_string()))?;
                    in_doubt(status)
                }
            },
            None => status,
        };
        put_state(tables, key, &queued, status)?;
    }
    Ok(())
}

/// States whose message is not there.
fn orphans(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    for row in transaction.open_table(definition(STATES))?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        if tables.get(Table::Messages)?.get(key.value())?.is_none() {
            let why = RecordError::Orphan.to_string();
            quarantine::put(tables, STATES, key.value(), (record.value(), &why))?;
        }
    }
    Ok(())
}

fn put_state(
    tables: &mut Tables<'_>,
    key: &[u8],
    queued: &Stamped,
    status: MessageStatus,
) -> Result<(), StoreError> {
    let Event::MessageQueued(message) = &queued.event else { return Ok(()) };
    if status.state == MessageState::Queued && status.attempts == 0 && status.reason.is_none() {
        return Ok(());
    }
    let steps = [status.step()];
    let (id, session, at) = (message.id, message.session, status.changed_at);
    let event = Event::MessageChanged { id, session, status: Box::new(status) };
    let change = Stamped { seq: queued.seq, at, event };
    tables.put(Table::MessageStates, key, &seal_state(key, &change, &steps)?)
}

/// What may have been typed is never typed again by itself.
fn in_doubt(status: MessageStatus) -> MessageStatus {
    let reason = Some("the record of its state was damaged".to_owned());
    MessageStatus { state: MessageState::InDoubt, reason, ..status }
}

/// A message as it was queued, where it was when that was written, and its body.
fn message<'a>(key: &[u8], record: &'a [u8]) -> Result<(Stamped, MessageStatus, &'a [u8]), RecordError> {
    let (event, body) = split_message(MESSAGES, key, record)?;
    let old: OldStamped = decode_record(event).map_err(RecordError::Decode)?;
    let OldEvent::MessageQueued(message) = old.event else { return Err(RecordError::Kind) };
    let status = MessageStatus {
        state: message.state,
        attempts: message.attempts,
        token: message.token,
        changed_at: message.changed_at,
        reason: message.reason.clone(),
        ..MessageStatus::default()
    };
    let (seq, at) = (Seq(message.id.0), message.created_at);
    Ok((Stamped { seq, at, event: Event::MessageQueued(Box::new(renewed(*message))) }, status, body))
}

fn renewed(old: OldMessage) -> Message {
    Message {
        id: old.id,
        session: old.session,
        ordinal: old.ordinal,
        kind: old.kind,
        key: old.key,
        op: None,
        origin: old.origin,
        cause: None,
        hops: 0,
        priority: 0,
        size: old.size,
        digest: old.digest,
        enter: old.enter,
        max_attempts: ATTEMPTS,
        created_at: old.created_at,
        expires_at: old.expires_at,
        status: MessageStatus::default(),
        steps: Vec::new(),
    }
}

fn state(key: &[u8], record: &[u8]) -> Result<MessageStatus, RecordError> {
    let old: OldStamped = decode_record(unseal(STATES, key, record)?).map_err(RecordError::Decode)?;
    match old.event {
        OldEvent::MessageChanged { state, token, attempts, reason, .. } => {
            let changed_at = old.at;
            Ok(MessageStatus { state, attempts, token, changed_at, reason, ..MessageStatus::default() })
        }
        _ => Err(RecordError::Kind),
    }
}

#[derive(Deserialize)]
struct OldStamped {
    #[expect(dead_code, reason = "its place in the encoding")]
    seq: Seq,
    at: Timestamp,
    event: OldEvent,
}

/// Encoded by their numbers: the two of interest are the 16th and the 17th.
#[derive(Deserialize)]
enum OldEvent {
    N0,
    N1,
    N2,
    N3,
    N4,
    N5,
    N6,
    N7,
    N8,
    N9,
    N10,
    N11,
    N12,
    N13,
    N14,
    MessageQueued(Box<OldMessage>),
    MessageChanged {
        #[expect(dead_code, reason = "its place in the encoding")]
        id: MessageId,
        #[expect(dead_code, reason = "its place in the encoding")]
        session: SessionId,
        state: MessageState,
        token: Option<Token>,
        attempts: u32,
        reason: Option<String>,
    },
}

#[derive(Deserialize)]
struct OldMessage {
    id: MessageId,
    session: SessionId,
    ordinal: u64,
    kind: String,
    key: Option<String>,
    origin: String,
    size: u32,
    digest: u64,
    enter: bool,
    state: MessageState,
    attempts: u32,
    token: Option<Token>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    changed_at: Timestamp,
    reason: Option<String>,
}
