//! Reads from any thread, beside the one writer.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::{fs, io};

use protocol::{Event, Message, MessageId, MessageState, MessageStatus, Stamped, Step};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTableMetadata};

use crate::error::{RecordError, StoreError};
use crate::record::{record_error, unseal_message, unseal_state};
use crate::tables::{Table, number_key};
use crate::transaction::open;

/// Reads an open database; clones read the same one. Each call sees the last commit before it. An idle reader
/// blocks nothing.
#[derive(Debug, Clone)]
pub struct Reader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// None once the store is closed. Locked for reading while a transaction begins, and for writing by a
    /// compaction.
    db: RwLock<Option<Database>>,
    latched: AtomicBool,
    file: Option<OpenFile>,
}

/// The file of an open database.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    /// Its device and inode.
    id: (u64, u64),
}

impl OpenFile {
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), id: (found.dev(), found.ino()) })
    }
}

impl Reader {
    pub(crate) fn new(db: Database, file: Option<OpenFile>) -> Self {
        Self(Arc::new(Shared { db: RwLock::new(Some(db)), latched: AtomicBool::new(false), file }))
    }

    /// Returns a message with its state, its steps and its body, if it is stored.
    ///
    /// # Errors
    /// [`StoreError::Record`] if one of its records is damaged, which does not latch.
    pub fn message(&self, id: MessageId) -> Result<Option<(Message, Vec<u8>)>, StoreError> {
        self.reading(|read| {
            let key = number_key(id.0);
            let row = open(read, Table::Messages)?.get(key.as_slice())?;
            let Some(row) = row else { return Ok(None) };
            let state = open(read, Table::MessageStates)?.get(key.as_slice())?;
            let (message, body) = decode_message(&key, row.value())?;
            let message = with_state(message, &key, state.as_ref().map(|row| row.value()))?;
            Ok(Some((message, body.to_vec())))
        })
    }

    /// Returns messages with their states, in the requested order, without their bodies and with no steps but those of
    /// their acceptance. Leaves out those that are not stored, and damaged ones, whose damage [`Reader::message`]
    /// returns.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn messages(&self, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        self.reading(|read| {
            let (messages, states) = (open(read, Table::Messages)?, open(read, Table::MessageStates)?);
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                let key = number_key(id.0);
                let Some(row) = messages.get(key.as_slice())? else { continue };
                let state = states.get(key.as_slice())?;
                let message = decode_message(&key, row.value()).and_then(|(message, _)| {
                    with_state(message, &key, state.as_ref().map(|row| row.value()))
                });
                let Ok(mut message) = message else { continue };
                message.steps.retain(|step| step.state == MessageState::Accepted);
                found.push(message);
            }
            Ok(found)
        })
    }

    /// Calls `f` with every stored message from this id on, with its state, its steps and its body, in the
    /// order of ids, until `f` returns false. Leaves out damaged ones.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn each_message(
        &self,
        from: MessageId,
        mut f: impl FnMut(Message, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.reading(|read| {
            let (messages, states) = (open(read, Table::Messages)?, open(read, Table::MessageStates)?);
            for row in messages.range(number_key(from.0).as_slice()..)? {
                let (key, record) = row?;
                let state = states.get(key.value())?;
                let Ok((message, body)) = decode_message(key.value(), record.value()) else { continue };
                let state = state.as_ref().map(|row| row.value());
                let Ok(message) = with_state(message, key.value(), state) else { continue };
                if !f(message, body) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Returns the number of quarantined records.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn quarantined(&self) -> Result<u64, StoreError> {
        self.reading(|read| Ok(open(read, Table::Quarantine)?.len()?))
    }

    /// Returns the path of the file; `None` without a file.
    pub fn path(&self) -> Option<PathBuf> {
        self.0.file.as_ref().map(|file| file.path.clone())
    }

    /// Returns the size of the file in bytes; 0 without a file.
    pub fn bytes(&self) -> u64 {
        self.0.file.as_ref().and_then(|file| fs::metadata(&file.path).ok()).map_or(0, |file| file.len())
    }

    /// True if the file was removed, or replaced by another one: what is open is lost once it is closed.
    pub fn is_removed(&self) -> bool {
        let is_gone = |file: &OpenFile| match fs::metadata(&file.path) {
            Ok(found) => (found.dev(), found.ino()) != file.id,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        self.0.file.as_ref().is_some_and(is_gone)
    }

    /// Fails if the store is latched.
    ///
    /// # Errors
    /// [`StoreError::Latched`].
    pub fn check(&self) -> Result<(), StoreError> {
        if self.0.latched.load(Ordering::Acquire) { Err(StoreError::Latched) } else { Ok(()) }
    }

    /// Fails from now on, as after a failure of the storage.
    #[cfg(any(test, feature = "testing"))]
    pub fn fail(&self) {
        self.latch();
    }

    /// Runs `f` on one snapshot. A failure of the storage latches; a damaged record does not.
    pub(crate) fn reading<T>(
        &self,
        f: impl FnOnce(&ReadTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = f(&self.snapshot()?);
        self.latch_on(result)
    }

    /// Returns a snapshot for a longer read. Pages freed meanwhile are not reused before it is dropped.
    pub(crate) fn snapshot(&self) -> Result<ReadTransaction, StoreError> {
        self.latch_on(self.with(|db| Ok(db.begin_read()?)))
    }

    /// Calls `f` with every row of a table of a snapshot. An error of `f` does not latch.
    pub(crate) fn each(
        &self,
        read: &ReadTransaction,
        table: Table,
        mut f: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let rows = open(read, table).and_then(|table| Ok(table.range::<&[u8]>(..)?));
        for row in self.latch_on(rows)? {
            let (key, record) = self.latch_on(row.map_err(StoreError::from))?;
            f(key.value(), record.value())?;
        }
        Ok(())
    }

    /// Returns one row of a table of a snapshot.
    pub(crate) fn row(
        &self,
        read: &ReadTransaction,
        table: Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let row = open(read, table).and_then(|table| Ok(table.get(key)?));
        Ok(self.latch_on(row)?.map(|row| row.value().to_vec()))
    }

    /// Runs `f` on the database itself; for short calls only, since a compaction waits for them.
    pub(crate) fn with<T>(
        &self,
        f: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check()?;
        f(self.database().as_ref().ok_or(StoreError::Closed)?)
    }

    /// Runs `f` with exclusive access: no transaction begins meanwhile.
    pub(crate) fn exclusively<T>(
        &self,
        f: impl FnOnce(&mut Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check()?;
        let mut db = self.0.db.write().unwrap_or_else(PoisonError::into_inner);
        f(db.as_mut().ok_or(StoreError::Closed)?)
    }

    /// Takes the database away from all readers, whose calls fail from now on.
    pub(crate) fn take(&self) -> Option<Database> {
        self.0.db.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn latch(&self) {
        self.0.latched.store(true, Ordering::Release);
    }

    /// Latches the store if the result is a failure of the storage.
    pub(crate) fn latch_on<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.as_ref().is_err_and(StoreError::latches) {
            self.latch();
        }
        result
    }

    fn database(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.0.db.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decode_message<'a>(key: &[u8], record: &'a [u8]) -> Result<(Message, &'a [u8]), StoreError> {
    match unseal_message(key, record) {
        Ok((Stamped { event: Event::MessageQueued(message), .. }, body)) => Ok((*message, body)),
        Ok(_) => Err(record_error(Table::Messages, key, RecordError::Kind)),
        Err(why) => Err(record_error(Table::Messages, key, why)),
    }
}

/// Adds the current state and the steps to a message; the first step is the queueing.
fn with_state(mut message: Message, key: &[u8], record: Option<&[u8]>) -> Result<Message, StoreError> {
    message.status = MessageStatus { changed_at: message.created_at, ..MessageStatus::default() };
    message.steps = vec![message.status.step()];
    if let Some(record) = record {
        let state = decode_state(key, record);
        let (status, steps) = state.map_err(|why| record_error(Table::MessageStates, key, why))?;
        message.status = status;
        message.steps.extend(steps);
    }
    Ok(message)
}

fn decode_state(key: &[u8], record: &[u8]) -> Result<(MessageStatus, Vec<Step>), RecordError> {
    match unseal_state(key, record)? {
        (Stamped { event: Event::MessageChanged { status, .. }, .. }, steps) => Ok((*status, steps)),
        _ => Err(RecordError::Kind),
    }
}
