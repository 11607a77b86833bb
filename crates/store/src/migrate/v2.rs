//! From schema 2: sessions without what bounds them and what becomes of them, and answers that show such a
//! one. The journal is full of them, so it begins anew: who comes from before is given the state.

mod old;

use protocol::frame::decode_record;
use protocol::{Event, Refusal, SessionId, Stamped};
use redb::{ReadableTable, WriteTransaction};

use super::{definition, new_journal};
use crate::commit::Tables;
use crate::error::{RecordError, StoreError};
use crate::quarantine;
use crate::record::{seal_event, unseal, unseal_event};
use crate::tables::Table;

const SESSIONS: &str = "sessions-1";
const JOURNAL: &str = "journal-2";

/// Rewrites the sessions, and the answers that show one.
pub(super) fn migrate(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    sessions(transaction, tables)?;
    transaction.delete_table(definition(SESSIONS))?;
    operations(tables)?;
    new_journal(transaction, tables, JOURNAL)
}

fn sessions(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    for row in transaction.open_table(definition(SESSIONS))?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        let (key, record) = (key.value(), record.value());
        match session(key, record) {
            Ok(session) => tables.put(Table::Sessions, key, &seal_event(Table::Sessions, key, &session)?)?,
            Err(why) => quarantine::put(tables, SESSIONS, key, (record, &why.to_string()))?,
        }
    }
    Ok(())
}

fn session(key: &[u8], record: &[u8]) -> Result<Stamped, RecordError> {
    let old: old::Stamped = decode_record(unseal(SESSIONS, key, record)?).map_err(RecordError::Decode)?;
    match old.event {
        old::Event::SessionCreated(session) => {
            let event = Event::SessionCreated(Box::new((*session).into()));
            Ok(Stamped { seq: old.seq, at: old.at, event })
        }
        _ => Err(RecordError::Kind),
    }
}

/// An operation that was answered with a session is answered with how that is now.
pub(super) fn operations(tables: &mut Tables<'_>) -> Result<(), StoreError> {
    let mut changed = Vec::new();
    for row in tables.get(Table::Operations)?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        let Ok(stamped) = unseal_event(Table::Operations, key.value(), record.value()) else { continue };
        let Event::OperationDone { op, digest, reply, at } = stamped.event else { continue };
        if let Some(session) = shown(&reply) {
            let event = Event::OperationBegun { op, digest, session, at };
            changed.push((key.value().to_vec(), Stamped { event, ..stamped }));
        }
    }
    for (key, stamped) in changed {
        tables.put(Table::Operations, &key, &seal_event(Table::Operations, &key, &stamped)?)?;
    }
    Ok(())
}

/// The session that an answer shows. The other answers that are remembered are still as they were.
fn shown(reply: &[u8]) -> Option<SessionId> {
    match decode_record::<Result<old::Response, Refusal>>(reply) {
        Ok(Ok(old::Response::Session(view))) => Some(view.session.id),
        _ => None,
    }
}
