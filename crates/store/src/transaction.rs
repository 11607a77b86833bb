//! The store's tables within a redb transaction.

use redb::{AccessGuard, Range, ReadOnlyTable, ReadTransaction, WriteTransaction};

use crate::error::StoreError;
use crate::record::{record_error, seal, unseal};
use crate::tables::{Table, key_number, number_key};

/// A key or a record, borrowed from a page.
pub(crate) type Guard = AccessGuard<'static, &'static [u8]>;
/// The rows of a table from a key on.
pub(crate) type Rows = Range<'static, &'static [u8], &'static [u8]>;

/// Opens a table of a snapshot.
pub(crate) fn open(
    read: &ReadTransaction,
    table: Table,
) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>, StoreError> {
    Ok(read.open_table(table.definition())?)
}

/// Reads a number from [`Table::Meta`]. A damaged one is fatal, since nothing else tells its value.
pub(crate) fn meta_number(read: &ReadTransaction, key: &[u8]) -> Result<Option<u64>, StoreError> {
    let row = open(read, Table::Meta)?.get(key)?;
    let Some(row) = row else { return Ok(None) };
    let payload = unseal(Table::Meta.name(), key, row.value());
    let number =
        payload.map_err(|why| StoreError::Damaged(record_error(Table::Meta, key, why).to_string()))?;
    Ok(key_number(number))
}

type WriteTable<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

/// The tables of a write transaction, each opened on first use.
pub(crate) struct Tables<'t> {
    transaction: &'t WriteTransaction,
    open: [Option<WriteTable<'t>>; Table::ALL.len()],
}

impl<'t> Tables<'t> {
    pub(crate) fn new(transaction: &'t WriteTransaction) -> Self {
        Self { transaction, open: [const { None }; Table::ALL.len()] }
    }

    /// Opens all tables, which creates those that are missing.
    pub(crate) fn create_all(&mut self) -> Result<(), StoreError> {
        for table in Table::ALL {
            self.get(table)?;
        }
        Ok(())
    }

    pub(crate) fn get(&mut self, table: Table) -> Result<&mut WriteTable<'t>, StoreError> {
        match &mut self.open[table as usize] {
            Some(open) => Ok(open),
            closed => Ok(closed.insert(self.transaction.open_table(table.definition())?)),
        }
    }

    pub(crate) fn put(&mut self, table: Table, key: &[u8], record: &[u8]) -> Result<(), StoreError> {
        self.get(table)?.insert(key, record)?;
        Ok(())
    }

    pub(crate) fn remove(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        self.get(table)?.remove(key)?;
        Ok(())
    }

    /// Removes a row and returns its record.
    pub(crate) fn take(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.get(table)?.remove(key)?.map(|row| row.value().to_vec()))
    }

    /// Writes a number to [`Table::Meta`].
    pub(crate) fn put_number(&mut self, key: &[u8], n: u64) -> Result<(), StoreError> {
        self.put(Table::Meta, key, &seal(Table::Meta.name(), key, &[&number_key(n)]))
    }
}
