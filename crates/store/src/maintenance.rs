//! Maintenance of a database: copies, checks, compaction. Everything but [`Store::compact`] works on one
//! snapshot, beside the writer.

mod backup;
mod check;
mod export;
mod import;
mod line;

pub use backup::backup;
pub use check::{check, check_file};
pub use export::export;
pub use import::import;

#[cfg(test)]
pub(crate) use {backup::backup_with, import::import_with};

use crate::error::StoreError;
use crate::writer::Store;

impl Store {
    /// Shrinks the file by its unused space, and returns its size before and after, in bytes. Takes seconds
    /// for a large file.
    ///
    /// # Errors
    /// [`StoreError::Busy`] during a read, which changes nothing; any other error latches.
    pub fn compact(&mut self) -> Result<(u64, u64), StoreError> {
        let before = self.bytes();
        let compacted = self.reader.exclusively(|db| Ok(db.compact()?));
        self.reader.latch_on(compacted)?;
        Ok((before, self.bytes()))
    }
}
