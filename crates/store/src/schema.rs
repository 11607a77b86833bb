//! The version of the whole file. A file of a newer version is refused before anything is written
//! to it; a file of an older one is brought up to date.

use std::fs;
use std::path::Path;

use redb::{Database, ReadTransaction, ReadableDatabase, TableHandle};

use crate::error::StoreError;
use crate::migrate;
use crate::open::{INTEGRITY_MAX, builder};
use crate::overlay::Overlay;
use crate::record::{damaged, seal, unseal};
use crate::tables::{SCHEMA_KEY, Table, key_number, number_key};

/// The schema version that this build reads and writes.
pub const SCHEMA: u32 = 5;

/// Makes the tables in a new file; brings any other to this build's version. `keep` keeps the file as
/// it is, and is called before an older one is changed.
pub(crate) fn prepare(
    db: &Database,
    keep: impl FnOnce(u32) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let read = db.begin_read()?;
    if read.list_tables()?.next().is_none() {
        return create(db);
    }
    match version(&read)? {
        SCHEMA => {
            let known = read.list_tables()?.any(|table| table.name() == Table::LostConversations.name());
            drop(read);
            if known { Ok(()) } else { added(db) }
        }
        found if found > SCHEMA => Err(StoreError::Newer { found, known: SCHEMA }),
        found @ 1.. => {
            drop(read);
            keep(found)?;
            migrate::file(db, found)
        }
        found => Err(StoreError::Damaged(format!("schema version {found} never existed"))),
    }
}

/// The version of a file, which is not touched: what it holds is looked at in memory, or read-only
/// where it is large; none where that cannot be told so. A newer one is refused.
pub(crate) fn look(path: &Path) -> Result<Option<u32>, StoreError> {
    match peek(path) {
        Ok(found) if found > SCHEMA => Err(StoreError::Newer { found, known: SCHEMA }),
        Ok(found) => Ok(Some(found)),
        // Whatever is wrong with it is found at the real open.
        Err(_) => Ok(None),
    }
}

fn peek(path: &Path) -> Result<u32, StoreError> {
    if fs::metadata(path)?.len() >= INTEGRITY_MAX {
        return version(&builder(false, |_| {}).open_read_only(path)?.begin_read()?);
    }
    version(&builder(true, |_| {}).create_with_backend(Overlay::over(path)?)?.begin_read()?)
}

fn create(db: &Database) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    for table in Table::ALL {
        let mut rows = transaction.open_table(table.definition())?;
        if table == Table::Meta {
            drop(rows.insert(SCHEMA_KEY, row(SCHEMA).as_slice())?);
        }
    }
    Ok(transaction.commit()?)
}

/// Makes the table that came to this schema after files had been made with it. All else of them is as it is now.
fn added(db: &Database) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    drop(transaction.open_table(Table::LostConversations.definition())?);
    Ok(transaction.commit()?)
}

/// The row that says that a file has this version.
pub(crate) fn row(version: u32) -> Vec<u8> {
    seal(Table::Meta.name(), SCHEMA_KEY, &[&number_key(u64::from(version))])
}

pub(crate) fn version(read: &ReadTransaction) -> Result<u32, StoreError> {
    let version = meta_number(read, SCHEMA_KEY)?;
    let version = version.ok_or_else(|| StoreError::Damaged("it has no schema version".to_owned()))?;
    u32::try_from(version).map_err(|_| StoreError::Damaged(format!("schema version {version}")))
}

/// A number in [`Table::Meta`]. A damaged one is fatal: nothing else tells what it was.
pub(crate) fn meta_number(read: &ReadTransaction, key: &[u8]) -> Result<Option<u64>, StoreError> {
    let row = read.open_table(Table::Meta.definition())?.get(key)?;
    let Some(row) = row else { return Ok(None) };
    let payload = unseal(Table::Meta.name(), key, row.value());
    let number = payload.map_err(|why| StoreError::Damaged(damaged(Table::Meta, key, why).to_string()))?;
    Ok(key_number(number))
}
