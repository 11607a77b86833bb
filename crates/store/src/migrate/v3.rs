//! From schema 3: sessions without a lock, policies without rules, and answers that show such sessions.
//! All of it is only written anew, the journal, too.

mod old;

use protocol::frame::decode_record;
use protocol::reply::Response;
use protocol::{Event, Refusal, Stamped};
use redb::{ReadableTable, WriteTransaction};

use super::definition;
use crate::commit::Tables;
use crate::error::{RecordError, StoreError};
use crate::record::{seal_event, unseal};
use crate::tables::Table;

const SESSIONS: &str = "sessions-2";
const JOURNAL: &str = "journal-3";

/// Rewrites the sessions, the journal, and the answers that show a session.
pub(super) fn migrate(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    super::sessions(transaction, tables, SESSIONS, session)?;
    journal(transaction, tables)?;
    answers(tables)
}

fn journal(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    for row in transaction.open_table(definition(JOURNAL))?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        let (key, record) = (key.value(), record.value());
        match event(key, record) {
            Ok(event) => tables.put(Table::Journal, key, &seal_event(Table::Journal, key, &event)?)?,
            // It is as damaged in its new place: a reader is told, and does not miss it unawares.
            Err(_) => tables.put(Table::Journal, key, record)?,
        }
    }
    transaction.delete_table(definition(JOURNAL))?;
    Ok(())
}

fn session(payload: &[u8]) -> Result<Stamped, RecordError> {
    now(decode_record(payload).map_err(RecordError::Decode)?).ok_or(RecordError::Kind)
}

/// An event of the journal. Most are as they were.
fn event(key: &[u8], record: &[u8]) -> Result<Stamped, RecordError> {
    let payload = unseal(JOURNAL, key, record)?;
    match decode_record(payload).ok().and_then(now) {
        Some(event) => Ok(event),
        None => decode_record(payload).map_err(RecordError::Decode),
    }
}

/// An event as it is now, where it is one of those that changed.
fn now(old: old::Stamped) -> Option<Stamped> {
    let event = match old.event {
        old::Event::SessionCreated(session) => Event::SessionCreated(Box::new((*session).into())),
        old::Event::SessionPolicyChanged { session, policy } => {
            Event::SessionPolicyChanged { session, policy: policy.into() }
        }
        _ => return None,
    };
    Some(Stamped { seq: old.seq, at: old.at, event })
}

/// An operation that was answered with sessions has the same answer.
pub(super) fn answers(tables: &mut Tables<'_>) -> Result<(), StoreError> {
    super::answers(tables, answer)
}

/// An answer as it is now, if it shows sessions; the others that are remembered did not change.
fn answer(reply: &[u8]) -> Option<Response> {
    match decode_record::<Result<old::Response, Refusal>>(reply).ok()?.ok()? {
        old::Response::Session(view) => Some(Response::Session(Box::new((*view).into()))),
        old::Response::Sessions(views) => {
            Some(Response::Sessions(views.into_iter().map(Into::into).collect()))
        }
        _ => None,
    }
}
