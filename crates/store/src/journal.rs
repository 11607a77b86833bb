//! The journal: what subscribers that were away are served from. What queued a message is read from
//! the messages' own table, everything else from the journal's; together they are in one order.

use std::iter::Peekable;

use protocol::{Seq, Stamped, Timestamp};
use redb::{AccessGuard, Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageError};

use crate::commit::Tables;
use crate::error::{RecordError, StoreError};
use crate::reader::{Reader, open};
use crate::record::{damaged, unseal_event, unseal_message};
use crate::schema::meta_number;
use crate::tables::{FLOOR_KEY, SEQ_KEY, Table, key_number, number_key};

/// The most rows that one call of [`crate::Store::trim_journal`] removes, so that no turn is held up
/// for long. Where it answers as many, there may be more.
pub const TRIM_MAX: u64 = 4096;

impl Reader {
    /// Up to `limit` events after this place, in order; where that is older, after [`Reader::floor`]: what
    /// lies between was trimmed away, and whoever needs it has to begin with the state.
    ///
    /// # Errors
    /// [`StoreError::Record`] where the next event is damaged: the journal ends there for who comes
    /// from before it, and only the state itself helps. That does not latch.
    pub fn events_since(&self, since: Seq, limit: usize) -> Result<Vec<Stamped>, StoreError> {
        self.reading(|read| {
            let mut events = Vec::new();
            for row in rows_since(read, since.0)?.take(limit) {
                let (table, key, record) = row?;
                match event(table, key.value(), record.value()) {
                    Ok(event) => events.push(event),
                    Err(why) if events.is_empty() => return Err(damaged(table, key.value(), why)),
                    Err(_) => break,
                }
            }
            Ok(events)
        })
    }

    /// The last place that was trimmed away, 0 where none was: the journal goes on for who has seen all
    /// up to here.
    ///
    /// # Errors
    /// A failure of the storage.
    pub fn floor(&self) -> Result<Seq, StoreError> {
        self.reading(|read| floor(read).map(Seq))
    }

    /// The first place that the journal still holds, which follows the floor; none where it holds nothing.
    ///
    /// # Errors
    /// A failure of the storage.
    pub fn oldest_seq(&self) -> Result<Option<Seq>, StoreError> {
        self.reading(|read| {
            let floor = floor(read)?;
            let any = rows_since(read, floor)?.next().transpose()?.is_some();
            Ok(any.then(|| Seq(floor.saturating_add(1))))
        })
    }
}

/// The last place that was trimmed away.
pub(crate) fn floor(read: &ReadTransaction) -> Result<u64, StoreError> {
    Ok(meta_number(read, FLOOR_KEY)?.unwrap_or(0))
}

/// The last place that was given out.
pub(crate) fn last(read: &ReadTransaction) -> Result<u64, StoreError> {
    let mut last = meta_number(read, SEQ_KEY)?.unwrap_or(0);
    for table in [Table::Messages, Table::Journal] {
        let table = open(read, table)?;
        last = last.max(table.last()?.and_then(|(key, _)| key_number(key.value())).unwrap_or(0));
    }
    Ok(last)
}

/// Moves the journal's beginning up: to the newest `keep` places, and past what was before
/// `older_than`; never past the newest event. Answers how many rows went, and where it begins after.
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
    tables.number(FLOOR_KEY, to)?;
    tables.number(SEQ_KEY, last)?;
    drop(tables);
    transaction.commit()?;
    Ok((removed, to))
}

/// The last place in this range before which all is older than that, taking places to be in the
/// order of time.
fn last_before(
    read: &ReadTransaction,
    (mut low, mut high): (u64, u64),
    older_than: Timestamp,
) -> Result<u64, StoreError> {
    while low < high {
        let middle = low + (high - low) / 2;
        let row = rows_after(read, middle)?.next().transpose()?;
        let stamped = row.and_then(|(table, key, record)| event(table, key.value(), record.value()).ok());
        match stamped {
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

type Guard = AccessGuard<'static, &'static [u8]>;
type Rows = redb::Range<'static, &'static [u8], &'static [u8]>;

/// The rows of the journal and of the messages, in one order.
struct Merged {
    journal: Peekable<Rows>,
    messages: Peekable<Rows>,
}

/// What is still in the journal after this place.
fn rows_since(read: &ReadTransaction, since: u64) -> Result<Merged, StoreError> {
    rows_after(read, since.max(floor(read)?))
}

fn rows_after(read: &ReadTransaction, place: u64) -> Result<Merged, StoreError> {
    let from = number_key(place.saturating_add(1));
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
