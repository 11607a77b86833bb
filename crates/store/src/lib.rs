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
//! row says. [`Store::open`] builds the pool from rows alone; the journal serves subscribers.

mod commit;
mod error;
mod journal;
mod load;
mod open;
mod record;
mod schema;
mod tables;

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use pool::Pool;
use protocol::{MessageId, SessionId, Stamped};
use redb::{Database, ReadableDatabase};

pub use error::{RecordError, StoreError};
pub use load::{Loaded, Quarantined};
pub use schema::SCHEMA;
pub use tables::Table;

/// Whose each stored message is; keeps the deletion of a session from reading every message.
type Owners = HashMap<MessageId, SessionId>;

/// An open database.
#[derive(Debug)]
pub struct Store {
    db: Database,
    path: Option<PathBuf>,
    owners: Owners,
    latched: Cell<bool>,
}

impl Store {
    /// Writes what these events touched, and the events themselves where they are journaled, in one
    /// transaction. `pool` is the state with the events already applied; `bodies` holds the body of
    /// each message that they queued. Without events nothing is written.
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
        let committed = commit::changes(pool, events, bodies, &mut self.owners)
            .and_then(|changes| commit::write(&self.db, changes));
        if committed.is_err() {
            self.latched.set(true);
        }
        committed
    }

    /// The body of a message, if the message is stored.
    ///
    /// # Errors
    /// [`StoreError::Record`] where its record is damaged; that does not latch.
    pub fn body(&self, id: MessageId) -> Result<Option<Vec<u8>>, StoreError> {
        self.guarded(|db| {
            let key = tables::number_key(id.0);
            let row = db.begin_read()?.open_table(Table::Messages.definition())?.get(key.as_slice())?;
            let Some(row) = row else { return Ok(None) };
            match record::unseal_message(&key, row.value()) {
                Ok((_, body)) => Ok(Some(body.to_vec())),
                Err(why) => Err(record::damaged(Table::Messages, &key, why)),
            }
        })
    }

    /// Size of the file in bytes; 0 where there is none.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.path.as_ref().and_then(|path| fs::metadata(path).ok()).map_or(0, |file| file.len())
    }

    /// Closes the file, so that the next open need not repair it.
    ///
    /// # Errors
    /// A failure of the storage; what was committed is safe all the same.
    pub fn close(self) -> Result<(), StoreError> {
        self.check()?;
        Ok(self.db.close()?)
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.latched.get() { Err(StoreError::Latched) } else { Ok(()) }
    }

    /// A failure of the storage latches, a damaged record does not.
    fn guarded<T>(&self, f: impl FnOnce(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.check()?;
        let result = f(&self.db);
        if result.as_ref().is_err_and(|error| !matches!(error, StoreError::Record { .. })) {
            self.latched.set(true);
        }
        result
    }
}
