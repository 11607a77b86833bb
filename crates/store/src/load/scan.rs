//! Scans all messages, each with its state.

use std::collections::BTreeSet;
use std::iter::Peekable;

use protocol::message::suspended_at;
use protocol::{Event, MessageId, MessageState, MessageStatus, SessionId, Stamped, Step, Timestamp};
use redb::{ReadTransaction, StorageError};

use crate::error::{RecordError, StoreError};
use crate::record::{unseal_message, unseal_state};
use crate::tables::Table;
use crate::transaction::{Guard, Rows, open};

/// A record that cannot be decoded or applied.
pub(super) struct BadRecord {
    pub(super) table: Table,
    pub(super) key: Vec<u8>,
    pub(super) why: RecordError,
}

/// A message whose state cannot be decoded.
pub(super) struct UnknownState {
    pub(super) id: MessageId,
    pub(super) session: SessionId,
    pub(super) created_at: Timestamp,
}

/// A finding of the scan.
pub(super) enum Found {
    Event(Stamped),
    Bad(BadRecord),
    UnknownState(UnknownState),
}

/// Calls `found` with everything in the two tables, in the order of ids. A message of a session that is not
/// in `sessions` is bad.
pub(super) fn messages(
    read: &ReadTransaction,
    sessions: &BTreeSet<SessionId>,
    found: impl FnMut(Found),
) -> Result<(), StoreError> {
    let states = open(read, Table::MessageStates)?.range::<&[u8]>(..)?.peekable();
    let mut scan = Scan { states, sessions, found };
    for row in open(read, Table::Messages)?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        scan.orphans(Some(key.value()))?;
        scan.message(key.value(), record.value())?;
    }
    scan.orphans(None)
}

type RowResult = Result<(Guard, Guard), StorageError>;

struct Scan<'a, F> {
    states: Peekable<Rows>,
    sessions: &'a BTreeSet<SessionId>,
    found: F,
}

impl<F: FnMut(Found)> Scan<'_, F> {
    fn message(&mut self, key: &[u8], record: &[u8]) -> Result<(), StoreError> {
        let queued = match unseal_message(key, record) {
            Ok((queued, _)) => queued,
            Err(why) => {
                self.bad(Table::Messages, key, why);
                return Ok(());
            }
        };
        let Event::MessageQueued(message) = &queued.event else {
            self.bad(Table::Messages, key, RecordError::Kind);
            return Ok(());
        };
        let (id, session, created_at) = (message.id, message.session, message.created_at);
        if !self.sessions.contains(&session) {
            return self.without_session(key, session);
        }
        (self.found)(Found::Event(queued));
        if let Some((_, record)) = self.states.next_if(|row| is_at(row, key)).transpose()? {
            match unseal_state(key, record.value()) {
                Ok((change, steps)) => {
                    suspension(&change, &steps)
                        .into_iter()
                        .for_each(|event| (self.found)(Found::Event(event)));
                    (self.found)(Found::Event(change));
                }
                Err(why) => {
                    self.bad(Table::MessageStates, key, why);
                    (self.found)(Found::UnknownState(UnknownState { id, session, created_at }));
                }
            }
        }
        Ok(())
    }

    /// Reports a message whose session is not stored, and its state.
    fn without_session(&mut self, key: &[u8], session: SessionId) -> Result<(), StoreError> {
        self.bad(Table::Messages, key, RecordError::NoSession(session));
        if self.states.next_if(|row| is_at(row, key)).transpose()?.is_some() {
            self.bad(Table::MessageStates, key, RecordError::NoSession(session));
        }
        Ok(())
    }

    /// Reports states before this key whose messages are not stored; with `None`, all remaining ones.
    fn orphans(&mut self, before: Option<&[u8]>) -> Result<(), StoreError> {
        while let Some(row) = self.states.next_if(|row| is_before(row, before)) {
            self.bad(Table::MessageStates, row?.0.value(), RecordError::Orphan);
        }
        Ok(())
    }

    fn bad(&mut self, table: Table, key: &[u8], why: RecordError) {
        (self.found)(Found::Bad(BadRecord { table, key: key.to_vec(), why }));
    }
}

/// Returns the change that suspended the message, if its agent already has the text; the last change alone
/// does not show it.
fn suspension(change: &Stamped, steps: &[Step]) -> Option<Stamped> {
    let Event::MessageChanged { id, session, .. } = change.event else { return None };
    let changed_at = suspended_at(steps)?;
    let status = MessageStatus { state: MessageState::Suspended, changed_at, ..MessageStatus::default() };
    Some(Stamped { event: Event::MessageChanged { id, session, status: Box::new(status) }, ..*change })
}

/// True if the row has this key. An error counts as a match, so that the caller meets it.
fn is_at(row: &RowResult, at: &[u8]) -> bool {
    row.as_ref().map_or(true, |(key, _)| key.value() == at)
}

/// True if the row's key is before this one, or for `None`. An error counts as a match likewise.
fn is_before(row: &RowResult, before: Option<&[u8]>) -> bool {
    match (row, before) {
        (Ok((key, _)), Some(before)) => key.value() < before,
        _ => true,
    }
}
