//! The one writer of an open database.

use std::ops::Deref;

use pool::Pool;
use protocol::{MessageId, Stamped, Timestamp};

use crate::commit::{self, Batch};
use crate::error::StoreError;
use crate::reader::Reader;
use crate::{journal, quarantine};

/// An open database. There is one writer; everything that only reads is a method of [`Reader`], and may run
/// on other threads at the same time.
#[derive(Debug)]
pub struct Store {
    pub(crate) reader: Reader,
    /// Last sequence number trimmed from the journal.
    floor: u64,
}

impl Deref for Store {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl Store {
    pub(crate) fn new(reader: Reader, floor: u64) -> Self {
        Self { reader, floor }
    }

    /// Returns a reader for another thread.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Writes the rows that these events change, and the journaled events themselves, in one transaction.
    /// `pool` is the state with the events already applied; `bodies` holds the body of each message that they
    /// queue, sorted by id. Writes nothing if there are no events.
    ///
    /// # Errors
    /// Any error latches the store and leaves the commit in doubt.
    pub fn commit(
        &mut self,
        pool: &Pool,
        events: &[Stamped],
        bodies: &[(MessageId, Vec<u8>)],
    ) -> Result<(), StoreError> {
        self.check()?;
        if events.is_empty() {
            return Ok(());
        }
        let batch = Batch { pool, events, bodies, floor: self.floor };
        self.reader.with(|db| commit::commit(db, batch)).inspect_err(|_| self.reader.latch())
    }

    /// Trims the journal from its old end: to the newest `keep` sequence numbers, and further to the first
    /// event that is not older than `older_than`. The newest event always stays. Removes at most [`TRIM_MAX`]
    /// rows per call and returns how many it removed. An event that queued a message is only hidden; its row
    /// goes with the message.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    ///
    /// [`TRIM_MAX`]: crate::TRIM_MAX
    pub fn trim_journal(&mut self, keep: u64, older_than: Timestamp) -> Result<u64, StoreError> {
        let trimmed = self.reader.with(|db| journal::trim(db, keep, older_than));
        let (rows, floor) = self.reader.latch_on(trimmed)?;
        self.floor = floor;
        Ok(rows)
    }

    /// Makes this the database of the timeline with this id, and no longer a copy; see [`crate::Timeline`].
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn set_timeline(&mut self, id: u64) -> Result<(), StoreError> {
        let written = self.reader.with(|db| commit::set_timeline(db, id));
        self.reader.latch_on(written)
    }

    /// Deletes all quarantined records for good, and returns how many there were.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn delete_quarantined(&mut self) -> Result<u64, StoreError> {
        let deleted = self.reader.with(quarantine::delete_all);
        self.reader.latch_on(deleted)
    }

    /// Closes the file, so that the next open needs no repair. Remaining readers fail with
    /// [`StoreError::Closed`] from now on.
    ///
    /// # Errors
    /// A failure of the storage; everything committed is safe nevertheless.
    pub fn close(self) -> Result<(), StoreError> {
        self.check()?;
        self.reader.take().map_or(Ok(()), |db| Ok(db.close()?))
    }
}
