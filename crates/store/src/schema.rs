//! The version of the whole file. A file of a newer version is refused before anything is written
//! to it; a file of an older one is brought up to date here.

use std::fs;
use std::path::Path;

use redb::backends::InMemoryBackend;
use redb::{Database, ReadTransaction, ReadableDatabase, StorageBackend};

use crate::error::StoreError;
use crate::open::{INTEGRITY_MAX, builder};
use crate::record::{damaged, seal, unseal};
use crate::tables::{SCHEMA_KEY, Table, key_number, number_key};

/// The schema version that this build reads and writes.
pub const SCHEMA: u32 = 1;

/// Makes the tables in a new file; in any other, sees to it that it has this build's version.
pub(crate) fn prepare(db: &Database) -> Result<(), StoreError> {
    let read = db.begin_read()?;
    if read.list_tables()?.next().is_none() {
        return create(db);
    }
    match version(&read)? {
        SCHEMA => Ok(()),
        found if found > SCHEMA => Err(StoreError::Newer { found, known: SCHEMA }),
        // Migrations go here, one function and one file for each step.
        found => Err(StoreError::Damaged(format!("schema version {found} never existed"))),
    }
}

/// Refuses a file of a newer version without touching it: what the file holds is looked at in
/// memory, or read-only where it is large. Whatever else is wrong with it is found at the real open.
pub(crate) fn refuse_newer(path: &Path) -> Result<(), StoreError> {
    match peek(path) {
        Ok(found) if found > SCHEMA => Err(StoreError::Newer { found, known: SCHEMA }),
        _ => Ok(()),
    }
}

fn peek(path: &Path) -> Result<u32, StoreError> {
    if fs::metadata(path)?.len() >= INTEGRITY_MAX {
        return version(&builder(false, |_| {}).open_read_only(path)?.begin_read()?);
    }
    let bytes = fs::read(path)?;
    let copy = InMemoryBackend::new();
    StorageBackend::set_len(&copy, bytes.len() as u64)?;
    StorageBackend::write(&copy, 0, &bytes)?;
    version(&builder(true, |_| {}).create_with_backend(copy)?.begin_read()?)
}

fn create(db: &Database) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    for table in Table::ALL {
        let mut rows = transaction.open_table(table.definition())?;
        if table == Table::Meta {
            let record = seal(table, SCHEMA_KEY, &number_key(u64::from(SCHEMA)));
            drop(rows.insert(SCHEMA_KEY, record.as_slice())?);
        }
    }
    Ok(transaction.commit()?)
}

fn version(read: &ReadTransaction) -> Result<u32, StoreError> {
    let version = meta_number(read, SCHEMA_KEY)?;
    let version = version.ok_or_else(|| StoreError::Damaged("it has no schema version".to_owned()))?;
    u32::try_from(version).map_err(|_| StoreError::Damaged(format!("schema version {version}")))
}

/// A number in [`Table::Meta`]. A damaged one is fatal: nothing else tells what it was.
pub(crate) fn meta_number(read: &ReadTransaction, key: &[u8]) -> Result<Option<u64>, StoreError> {
    let row = read.open_table(Table::Meta.definition())?.get(key)?;
    let Some(row) = row else { return Ok(None) };
    let payload = unseal(Table::Meta, key, row.value());
    let number = payload.map_err(|why| StoreError::Damaged(damaged(Table::Meta, key, why).to_string()))?;
    Ok(key_number(number))
}
