//! Quarantine of unreadable records: each is kept with its bytes, and reported, until it is deleted.

use redb::{Database, ReadTransaction, ReadableTableMetadata};

use crate::error::StoreError;
use crate::record::{seal, unseal};
use crate::tables::Table;
use crate::transaction::{Tables, open};

/// A record that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Name of the table it was in.
    pub table: String,
    pub key: Vec<u8>,
    /// The whole record.
    pub bytes: Vec<u8>,
    /// The damage.
    pub why: String,
}

/// Puts a copy of a record into the quarantine.
pub(crate) fn put(
    tables: &mut Tables<'_>,
    table: &str,
    key: &[u8],
    (record, why): (&[u8], &str),
) -> Result<(), StoreError> {
    let key = [table.as_bytes(), &[0], key].concat();
    let length = u16::try_from(why.len()).unwrap_or(0);
    let why = &why.as_bytes()[..usize::from(length)];
    let row = seal(Table::Quarantine.name(), &key, &[&length.to_le_bytes(), why, record]);
    tables.put(Table::Quarantine, &key, &row)
}

/// Returns all quarantined records.
pub(crate) fn all(read: &ReadTransaction) -> Result<Vec<Quarantined>, StoreError> {
    let rows = open(read, Table::Quarantine)?.range::<&[u8]>(..)?;
    rows.map(|row| row.map(|(key, record)| parse(key.value(), record.value())).map_err(Into::into)).collect()
}

/// Deletes all quarantined records, and returns how many there were.
pub(crate) fn delete_all(db: &Database) -> Result<u64, StoreError> {
    let transaction = db.begin_write()?;
    let count = transaction.open_table(Table::Quarantine.definition())?.len()?;
    if count > 0 {
        transaction.delete_table(Table::Quarantine.definition())?;
        drop(transaction.open_table(Table::Quarantine.definition())?);
        transaction.commit()?;
    }
    Ok(count)
}

/// Parses a row of the quarantine; one that is itself damaged is reported with its bytes.
fn parse(key: &[u8], record: &[u8]) -> Quarantined {
    let (table, rest) = key.split_at(key.iter().position(|b| *b == 0).unwrap_or(key.len()));
    let split = unseal(Table::Quarantine.name(), key, record).ok().and_then(|payload| {
        let (length, rest) = payload.split_first_chunk::<2>()?;
        rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
    });
    let (why, bytes) = split.unwrap_or((b"damaged in the quarantine", record));
    Quarantined {
        table: String::from_utf8_lossy(table).into_owned(),
        key: rest.get(1..).unwrap_or_default().to_vec(),
        bytes: bytes.to_vec(),
        why: String::from_utf8_lossy(why).into_owned(),
    }
}
