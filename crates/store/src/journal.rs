//! The journal, from which subscribers are served after an absence. Events that queued a message are read
//! from the messages' own table, all others from the journal's table; the two are merged by sequence number.

use std::iter::Peekable;

use protocol::{Seq, Stamped, Timestamp};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageError};

use crate::error::{RecordError, StoreError};
use crate::reader::Reader;
use crate::record::{record_error, unseal_event, unseal_message};
use crate::tables::{FLOOR_KEY, SEQ_KEY, Table, key_number, number_key};
use crate::transaction::{Guard, Rows, Tables, meta_number, open};

/// Maximum number of rows that one call of [`crate::Store::trim_journal`] removes, which bounds the time of a
/// turn. If a call returns this number, there may be more to trim.
pub const TRIM_MAX: u64 = 4096;

impl Reader {
    /// Returns up to `limit` events after `since`, in order. If `since` is below [`Reader::floor`] it begins
    /// there: the events between were trimmed, and a subscriber that needs them has to start from the state.
    ///
    /// # Errors
    /// [`StoreError::Record`] if the next event is damaged; a subscriber can get past it only by the state.
    /// It does not latch.
    pub fn events_since(&self, since: Seq, limit: usize) -> Result<Vec<Stamped>, StoreError> {
        Ok(self.events_page(since, (limit, usize::MAX))?.0)
    }

    /// As [`Self::events_since`], up to the event with which they reach `bytes`: results of messages are
    /// large. Also returns true if there may be more.
    pub fn events_page(
        &self,
        since: Seq,
        (limit, bytes): (usize, usize),
    ) -> Result<(Vec<Stamped>, bool), StoreError> {
        self.reading(|read| {
            let (mut events, mut read_bytes) = (Vec::new(), 0);
            for row in rows_since(read, since.0)?.take(limit) {
                let (table, key, record) = row?;
                match event(table, key.value(), record.value()) {
                    Ok(event) => events.push(event),
                    Err(why) if events.is_empty() => return Err(record_error(table, key.value(), why)),
                    Err(_) => break,
                }
                // A message's record is mostly its body, which is no part of the event.
                read_bytes += if table == Table::Journal { record.value().len() } else { 0 };
                if read_bytes >= bytes {
                    return Ok((events, true));
                }
            }
            let is_full = events.len() == limit;
            Ok((events, is_full))
        })
    }

    /// Returns the last sequence number that was trimmed, 0 before the first trim. A subscriber that has seen
    /// all events up to it misses none.
    pub fn floor(&self) -> Result<Seq, StoreError> {
        self.reading(|read| floor(read).map(Seq))
    }

    /// Returns the first sequence number in the journal, which follows the floor; none if the journal is
    /// empty.
    pub fn oldest_seq(&self) -> Result<Option<Seq>, StoreError> {
        self.reading(|read| {
            let floor = floor(read)?;
            let any = rows_since(read, floor)?.next().transpose()?.is_some();
            Ok(any.then(|| Seq(floor.saturating_add(1))))
        })
    }
}

/// Returns the last sequence number that was trimmed.
pub(crate) fn floor(read: &ReadTransaction) -> Result<u64, StoreError> {
    Ok(meta_number(read, FLOOR_KEY)?.unwrap_or(0))
}

/// Returns the last sequence number that was given out.
pub(crate) fn last(read: &ReadTransaction) -> Result<u64, StoreError> {
    let mut last = meta_number(read, SEQ_KEY)?.unwrap_or(0);
    for table in [Table::Messages, Table::Journal] {
        let table = open(read, table)?;
        last = last.max(table.last()?.and_then(|(key, _)| key_number(key.value())).unwrap_or(0));
    }
    Ok(last)
}

/// Trims the journal to the newest `keep` sequence numbers, and further to the first event not before
/// `older_than`, but never the newest event. Returns the number of rows removed and the new floor.
pub(crate) fn trim(db: &Database, keep: u64, older_than: Timestamp) -> Result<(u64, u64), StoreError> {
    let read = db.begin_read()?;
    let (floor, last) = (floor(&read)?, last(&read)?);
    let old = last_before(&read, (floor, last), older_than)?;
    let mut to = old.max(last.saturating_sub(keep)).min(last.saturating_sub(1));
    if to <= floor {
        return Ok((0, floor));
    }
    let journal = open(&read, Table::Journal)?;
    let rows = journal.range::<&[u8]>(..=number_key(to).as_slice())?.take(TRIM_MAX as usize);
    let keys = rows.map(|row| Ok(row?.0.value().to_vec())).collect::<Result<Vec<_>, StoreError>>()?;
    let removed = keys.len() as u64;
    if let Some(end) = keys.last().filter(|_| removed == TRIM_MAX) {
        to = key_number(end).unwrap_or(to);
    }
    drop((journal, read));
    let transaction = db.begin_write()?;
    let mut tables = Tables::new(&transaction);
    keys.iter().try_for_each(|key| tables.remove(Table::Journal, key))?;
    tables.put_number(FLOOR_KEY, to)?;
    tables.put_number(SEQ_KEY, last)?;
    drop(tables);
    transaction.commit()?;
    Ok((removed, to))
}

/// Returns the last sequence number in the range before which all events are older than `older_than`. Binary
/// search: sequence numbers are taken to be in the order of time.
fn last_before(
    read: &ReadTransaction,
    (mut low, mut high): (u64, u64),
    older_than: Timestamp,
) -> Result<u64, StoreError> {
    while low < high {
        let middle = low + (high - low) / 2;
        // The time of a damaged row is that of the next readable one.
        let readable = |row: <Merged as Iterator>::Item| match row {
            Ok((table, key, record)) => event(table, key.value(), record.value()).ok().map(Ok),
            Err(error) => Some(Err(error)),
        };
        match rows_after(read, middle)?.find_map(readable).transpose()? {
            Some(stamped) if stamped.at < older_than => low = stamped.seq.0.clamp(middle + 1, high),
            _ => high = middle,
        }
    }
    Ok(low)
}

fn event(table: Table, key: &[u8], record: &[u8]) -> Result<Stamped, RecordError> {
    match table {
        Table::Messages => Ok(unseal_message(key, record)?.0),
        _ => unseal_event(table, key, record),
    }
}

/// The rows of the journal and of the messages, in the order of sequence numbers.
struct Merged {
    journal: Peekable<Rows>,
    messages: Peekable<Rows>,
}

/// Returns the rows after `since` that are not trimmed.
fn rows_since(read: &ReadTransaction, since: u64) -> Result<Merged, StoreError> {
    rows_after(read, since.max(floor(read)?))
}

/// Returns the rows after `seq`, trimmed ones included.
fn rows_after(read: &ReadTransaction, seq: u64) -> Result<Merged, StoreError> {
    let from = number_key(seq.saturating_add(1));
    let rows = |table| Ok::<_, StoreError>(open(read, table)?.range(from.as_slice()..)?.peekable());
    Ok(Merged { journal: rows(Table::Journal)?, messages: rows(Table::Messages)? })
}

impl Iterator for Merged {
    type Item = Result<(Table, Guard, Guard), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let message_first = match (self.messages.peek(), self.journal.peek()) {
            (Some(Ok((message, _))), Some(Ok((event, _)))) => message.value() < event.value(),
            (Some(Err(_)), _) | (Some(_), None) => true,
            _ => false,
        };
        let (table, rows) = if message_first {
            (Table::Messages, &mut self.messages)
        } else {
            (Table::Journal, &mut self.journal)
        };
        Some(rows.next()?.map(|(key, record)| (table, key, record)))
    }
}
