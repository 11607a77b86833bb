//! Where records go that cannot be read: aside, with their bytes, until somebody deals with them.

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTableMetadata};

use crate::commit::Tables;
use crate::error::StoreError;
use crate::reader::open;
use crate::record::{seal, unseal};
use crate::tables::Table;

/// A record that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The table it was in.
    pub table: String,
    /// Its key.
    pub key: Vec<u8>,
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// What was wrong with it.
    pub why: String,
}

/// Puts a copy of a record aside.
pub(crate) fn put(
    tables: &mut Tables<'_>,
    table: &str,
    key: &[u8],
    (record, why): (&[u8], &str),
) -> Result<(), StoreError> {
    let key = [table.as_bytes(), &[0], key].concat();
    let length = u16::try_from(why.len()).unwrap_or(0);
    let why = &why.as_bytes()[..usize::from(length)];
    let aside = seal(Table::Quarantine.name(), &key, &[&length.to_le_bytes(), why, record]);
    tables.put(Table::Quarantine, &key, &aside)
}

/// All of them.
pub(crate) fn all(db: &Database) -> Result<Vec<Quarantined>, StoreError> {
    in_snapshot(&db.begin_read()?)
}

/// All of them in a snapshot.
pub(crate) fn in_snapshot(read: &ReadTransaction) -> Result<Vec<Quarantined>, StoreError> {
    let rows = open(read, Table::Quarantine)?.range::<&[u8]>(..)?;
    rows.map(|row| row.map(|(key, record)| reported(key.value(), record.value())).map_err(Into::into))
        .collect()
}

/// Forgets all of them; answers how many there were.
pub(crate) fn forget(db: &Database) -> Result<u64, StoreError> {
    let transaction = db.begin_write()?;
    let count = transaction.open_table(Table::Quarantine.definition())?.len()?;
    if count > 0 {
        transaction.delete_table(Table::Quarantine.definition())?;
        drop(transaction.open_table(Table::Quarantine.definition())?);
        transaction.commit()?;
    }
    Ok(count)
}

/// A row of the quarantine; one that is damaged itself is reported as it is.
fn reported(key: &[u8], record: &[u8]) -> Quarantined {
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
