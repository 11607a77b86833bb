//! What can go wrong with the database.

use std::path::PathBuf;

use protocol::{FrameError, MessageId, SessionId};

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Written by a newer version; nothing was changed.
    #[error("the database has schema {found}, this version knows {known}: upgrade poold")]
    Newer {
        /// The file's schema version.
        found: u32,
        /// The newest one that this build knows, [`crate::SCHEMA`].
        known: u32,
    },
    /// The file is not a sound database.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// Another process has it open.
    #[error("the database is open in another process")]
    Locked,
    /// An earlier call failed.
    #[error("the database failed before; it must be opened again")]
    Latched,
    /// It was closed.
    #[error("the database is closed")]
    Closed,
    /// Somebody reads it, and must not for this.
    #[error("the database is being read; try again")]
    Busy,
    /// One record is damaged; the others are not affected.
    #[error("{} record {}: {why}", .table, key.escape_ascii())]
    Record {
        /// The table it is in.
        table: &'static str,
        /// Its key.
        key: Vec<u8>,
        /// What is wrong with it.
        why: RecordError,
    },
    /// A queued message came without its body.
    #[error("message {0} came without its body")]
    NoBody(MessageId),
    /// A file that is to be made is there already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// An export that is not whole, was changed, or is of another version.
    #[error("line {line} of the export: {why}")]
    Export {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// An export cannot be written, or not be read.
    #[error("the export failed: {0}")]
    Stream(#[source] std::io::Error),
    /// A fact that cannot be written down.
    #[error("a record cannot be encoded: {0}")]
    Encode(FrameError),
    /// The file system failed.
    #[error("the database file failed: {0}")]
    Io(#[from] std::io::Error),
    /// The database failed otherwise.
    #[error("the database failed: {0}")]
    Storage(#[source] Box<redb::Error>),
}

/// What is wrong with one record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Shorter than any record.
    #[error("too short for a record")]
    Short,
    /// A layout that this version does not know.
    #[error("record version {0} is unknown")]
    Version(u8),
    /// The checksum is another one.
    #[error("its checksum does not match")]
    Checksum,
    /// Sound bytes that are not what the table holds.
    #[error("it does not decode: {0}")]
    Decode(FrameError),
    /// Sound bytes of something else.
    #[error("it holds another kind of fact than its table")]
    Kind,
    /// A change of a message that is not there.
    #[error("its message is missing")]
    Orphan,
    /// A message of a session that is not there.
    #[error("its session {0} is missing")]
    NoSession(SessionId),
}

impl StoreError {
    /// Whether nothing may be read or written after it: a failure of the storage, not of one record.
    pub(crate) fn latches(&self) -> bool {
        !matches!(self, Self::Record { .. } | Self::Closed | Self::Busy)
    }
}

impl From<redb::Error> for StoreError {
    fn from(error: redb::Error) -> Self {
        use redb::Error as E;
        match error {
            E::DatabaseAlreadyOpen | E::LockProtocolMismatch => Self::Locked,
            E::DatabaseClosed => Self::Closed,
            E::TransactionInProgress => Self::Busy,
            E::Io(error) => Self::Io(error),
            E::Corrupted(_)
            | E::RepairAborted
            | E::UpgradeRequired(_)
            | E::TableDoesNotExist(_)
            | E::TableTypeMismatch { .. }
            | E::TableIsMultimap(_)
            | E::TypeDefinitionChanged { .. } => Self::Damaged(error.to_string()),
            other => Self::Storage(Box::new(other)),
        }
    }
}

macro_rules! through_redb {
    ($($error:ident),*) => {
        $(impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

through_redb!(CommitError, CompactionError, DatabaseError, StorageError, TableError, TransactionError);
