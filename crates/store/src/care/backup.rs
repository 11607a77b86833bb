//! A copy of a database as a file, complete and consistent, while the database is in use.

use std::path::Path;

use crate::commit::Tables;
use crate::error::StoreError;
use crate::names::{Names, Os, place_new};
use crate::open::empty;
use crate::reader::Reader;
use crate::tables::{COPIED_KEY, Table};

/// Writes what is stored into a new database file, which has its name only when it is whole and on disk.
///
/// # Errors
/// [`StoreError::Exists`], a failure of the new file, or of the database, which alone latches.
pub fn backup(reader: &Reader, path: &Path) -> Result<(), StoreError> {
    backup_with(&Os, reader, path)
}

pub(crate) fn backup_with(names: &dyn Names, reader: &Reader, path: &Path) -> Result<(), StoreError> {
    place_new(names, path, |unfinished| {
        let read = reader.snapshot()?;
        let db = empty(unfinished)?;
        let transaction = db.begin_write()?;
        let mut tables = Tables::new(&transaction);
        for table in Table::ALL {
            tables.get(table)?;
            reader.each(&read, table, |key, record| tables.put(table, key, record))?;
        }
        tables.number(COPIED_KEY, 1)?;
        drop(tables);
        transaction.commit()?;
        Ok(db.close()?)
    })
}
