//! Looking after a database: copies of it, and what is wrong with it. All of it but [`Store::compact`]
//! works beside the writer, on one snapshot.

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

use crate::Store;
use crate::error::StoreError;

impl Store {
    /// Gives unused space back to the file system. Answers the size of the file before and after, in
    /// bytes. Takes seconds where the file is large.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while something is read, which changes nothing; any other latches.
    pub fn compact(&mut self) -> Result<(u64, u64), StoreError> {
        let before = self.bytes();
        let compacted = self.reader.alone(|db| Ok(db.compact()?));
        self.reader.latch_on(compacted)?;
        Ok((before, self.bytes()))
    }
}
