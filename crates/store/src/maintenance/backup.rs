//! Backup: a complete and consistent copy as a database file, while the database is in use.

use std::path::Path;

use crate::atomic_file::{Directory, OsDirectory, create_new};
use crate::database;
use crate::error::StoreError;
use crate::reader::Reader;
use crate::tables::{COPIED_KEY, FROM_BACKUP, Table};
use crate::transaction::Tables;

/// Writes a snapshot to a new database file, which gets its name only when it is complete and on disk.
///
/// # Errors
/// [`StoreError::Exists`], a failure of the new file, or a failure of the database; only the last one
/// latches.
pub fn backup(reader: &Reader, path: &Path) -> Result<(), StoreError> {
    backup_with(&OsDirectory, reader, path)
}

pub(crate) fn backup_with(directory: &dyn Directory, reader: &Reader, path: &Path) -> Result<(), StoreError> {
    create_new(directory, path, |temporary| {
        let read = reader.snapshot()?;
        let db = database::create(temporary)?;
        let transaction = db.begin_write()?;
        let mut tables = Tables::new(&transaction);
        tables.create_all()?;
        for table in Table::ALL {
            reader.each(&read, table, |key, record| tables.put(table, key, record))?;
        }
        tables.put_number(COPIED_KEY, FROM_BACKUP)?;
        drop(tables);
        transaction.commit()?;
        Ok(db.close()?)
    })
}
