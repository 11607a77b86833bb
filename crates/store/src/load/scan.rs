//! Reading all messages, each followed by what became of it.

use std::collections::BTreeSet;
use std::iter::Peekable;

use protocol::message::suspended_at;
use protocol::{Event, MessageState, MessageStatus, SessionId, Stamped, Step};
use redb::{ReadTransaction, StorageError};

use super::{Bad, Found};
use crate::error::{RecordError, StoreError};
use crate::reader::open;
use crate::record::{unseal_message, unseal_state};
use crate::tables::Table;

/// Tells all that is found, in order. Messages of other sessions than these are nobody's.
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

type Guard = redb::AccessGuard<'static, &'static [u8]>;
type Row = Result<(Guard, Guard), StorageError>;

struct Scan<'a, F> {
    states: Peekable<redb::Range<'static, &'static [u8], &'static [u8]>>,
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
        if !self.sessions.contains(&message.session) {
            return self.nobodys(key, message.session);
        }
        let doubt = Found::Doubt(message.id, message.session, message.created_at);
        (self.found)(Found::Event(queued));
        if let Some((_, record)) = self.states.next_if(|row| is_at(row, key)).transpose()? {
            match unseal_state(key, record.value()) {
                Ok((change, steps)) => {
                    suspended(&change, &steps)
                        .into_iter()
                        .for_each(|event| (self.found)(Found::Event(event)));
                    (self.found)(Found::Event(change));
                }
                Err(why) => {
                    self.bad(Table::MessageStates, key, why);
                    (self.found)(doubt);
                }
            }
        }
        Ok(())
    }

    /// A message whose session is not there, and its state.
    fn nobodys(&mut self, key: &[u8], session: SessionId) -> Result<(), StoreError> {
        self.bad(Table::Messages, key, RecordError::NoSession(session));
        if self.states.next_if(|row| is_at(row, key)).transpose()?.is_some() {
            self.bad(Table::MessageStates, key, RecordError::NoSession(session));
        }
        Ok(())
    }

    /// States of messages that are not there, up to this one.
    fn orphans(&mut self, before: Option<&[u8]>) -> Result<(), StoreError> {
        while let Some(row) = self.states.next_if(|row| is_before(row, before)) {
            self.bad(Table::MessageStates, row?.0.value(), RecordError::Orphan);
        }
        Ok(())
    }

    fn bad(&mut self, table: Table, key: &[u8], why: RecordError) {
        (self.found)(Found::Bad(Bad { table, key: key.to_vec(), why }));
    }
}

/// That an agent has a message's text already, which the last change alone does not tell.
fn suspended(change: &Stamped, steps: &[Step]) -> Option<Stamped> {
    let Event::MessageChanged { id, session, .. } = change.event else { return None };
    let changed_at = suspended_at(steps)?;
    let status = MessageStatus { state: MessageState::Suspended, changed_at, ..MessageStatus::default() };
    Some(Stamped { event: Event::MessageChanged { id, session, status: Box::new(status) }, ..*change })
}

fn is_at(row: &Row, at: &[u8]) -> bool {
    row.as_ref().map_or(true, |(key, _)| key.value() == at)
}

fn is_before(row: &Row, before: Option<&[u8]>) -> bool {
    match (row, before) {
        (Ok((key, _)), Some(before)) => key.value() < before,
        _ => true,
    }
}
