//! From schema 2: sessions without what bounds them and what becomes of them, and answers that show such a
//! one. The journal is full of them, so it begins anew: who comes from before is given the state.

mod old;

use protocol::frame::decode_record;
use protocol::{Event, Refusal, SessionId, Stamped};
use redb::WriteTransaction;

use super::new_journal;
use crate::commit::Tables;
use crate::error::{RecordError, StoreError};

const SESSIONS: &str = "sessions-1";
const JOURNAL: &str = "journal-2";

/// Rewrites the sessions, and the answers that show one.
pub(super) fn migrate(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    super::sessions(transaction, tables, SESSIONS, session)?;
    answers(tables)?;
    new_journal(transaction, tables, JOURNAL)
}

fn session(payload: &[u8]) -> Result<Stamped, RecordError> {
    let old: old::Stamped = decode_record(payload).map_err(RecordError::Decode)?;
    match old.event {
        old::Event::SessionCreated(session) => {
            let event = Event::SessionCreated(Box::new((*session).into()));
            Ok(Stamped { seq: old.seq, at: old.at, event })
        }
        _ => Err(RecordError::Kind),
    }
}

/// An operation that was answered with a session is answered with how that is now.
pub(super) fn answers(tables: &mut Tables<'_>) -> Result<(), StoreError> {
    super::operations(tables, |event| {
        let Event::OperationDone { op, digest, reply, at } = event else { return None };
        let (session, op) = (shown(reply)?, op.clone());
        Some(Event::OperationBegun { op, digest: *digest, session, at: *at })
    })
}

/// The session that an answer shows. The other answers that are remembered are still as they were.
fn shown(reply: &[u8]) -> Option<SessionId> {
    match decode_record::<Result<old::Response, Refusal>>(reply) {
        Ok(Ok(old::Response::Session(view))) => Some(view.session.id),
        _ => None,
    }
}
