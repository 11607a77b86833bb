//! The durable memory of a pool: one redb file, written by one thread, without policy.
//!
//! The promise: when [`Store::commit`] returns `Ok`, its events, all of them, survive a crash of
//! the process, of the system and of the power supply; until then, either all of them do or none.
//! A commit that fails is in doubt: it may be there after the next open. Whatever happens, an open
//! finds the state after some prefix of the commits, and that prefix has every commit that
//! returned `Ok`.
//!
//! After the first failure of the storage the store is latched: it neither reads nor writes any
//! more, because going on after a failed write is how data is lost. Open it again to go on.
//!
//! Rows are the truth. Each row is an event: the one that, applied to an empty pool, makes what the
//! row says. [`Store::open`] builds the pool from rows alone; the journal serves subscribers. A
//! message's row is the very event that queued it, at its place in the journal, with its body.

pub mod care;
mod commit;
mod error;
mod journal;
mod load;
mod migrate;
mod names;
mod open;
mod overlay;
mod quarantine;
mod reader;
mod record;
mod schema;
mod tables;

use std::ops::Deref;

use pool::Pool;
use protocol::{MessageId, Stamped, Timestamp};

pub use error::{RecordError, StoreError};
pub use journal::TRIM_MAX;
pub use load::{Loaded, Timeline};
pub use quarantine::Quarantined;
pub use reader::Reader;
pub use schema::SCHEMA;
pub use tables::Table;

/// An open database. There is one writer; what only reads is [`Reader`]'s, and may be done from other
/// threads meanwhile.
#[derive(Debug)]
pub struct Store {
    reader: Reader,
    /// The last sequence number that was trimmed from the journal.
    floor: u64,
}

impl Deref for Store {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl Store {
    /// One that reads, for other threads.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Writes what these events touched, and the events themselves where they are journaled, in one
    /// transaction. `pool` is the state with the events already applied; `bodies` holds the body of
    /// each message that they queued, by id. Without events nothing is written.
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
        let batch = commit::Batch { pool, events, bodies, floor: self.floor };
        self.reader.with(|db| commit::commit(db, batch)).inspect_err(|_| self.reader.latch())
    }

    /// Trims the journal from its old end: to the newest `keep` places, and further to what is not
    /// older than `older_than`. The newest event stays. Up to [`TRIM_MAX`] rows go at a time; answers how
    /// many did. Events that queued a message go with it, not here: they are only not shown any more.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn trim_journal(&mut self, keep: u64, older_than: Timestamp) -> Result<u64, StoreError> {
        let trimmed = self.reader.with(|db| journal::trim(db, keep, older_than));
        let (rows, floor) = self.reader.latch_on(trimmed)?;
        self.floor = floor;
        Ok(rows)
    }

    /// Makes this the database of the timeline with this number: a copy no more.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn belongs_to(&mut self, timeline: u64) -> Result<(), StoreError> {
        let written = self.reader.with(|db| commit::belongs_to(db, timeline));
        self.reader.latch_on(written)
    }

    /// Forgets the records that were put aside, for good. Answers how many there were.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn forget_quarantined(&mut self) -> Result<u64, StoreError> {
        let forgotten = self.reader.with(quarantine::forget);
        self.reader.latch_on(forgotten)
    }

    /// Closes the file, so that the next open need not repair it. Whoever still reads it fails with
    /// [`StoreError::Closed`].
    ///
    /// # Errors
    /// A failure of the storage; what was committed is safe all the same.
    pub fn close(self) -> Result<(), StoreError> {
        self.check()?;
        self.reader.take().map_or(Ok(()), |db| Ok(db.close()?))
    }
}
