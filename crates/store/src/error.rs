//! Errors of the store, and of single records.

use std::path::PathBuf;

use protocol::{FrameError, MessageId, SessionId};

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file was written by a newer build; nothing was changed.
    #[error(
        "the database has schema {found}, but this build supports no schema above {known}; upgrade poold"
    )]
    Newer {
        /// The file's schema version.
        found: u32,
        /// The newest version that this build supports, [`crate::SCHEMA`].
        known: u32,
    },
    /// The file was written by an older build, and this one has no migration for its schema; nothing was
    /// changed.
    #[error(
        "the database has {0}, which this build cannot upgrade; export it with the build that wrote it \
         (`poolctl export FILE`), move the database file away, and import the export (`poolctl import FILE`)"
    )]
    Obsolete(String),
    /// The file is not a sound database.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// Another process has it open.
    #[error("the database is open in another process")]
    Locked,
    /// An earlier call failed.
    #[error("the database failed earlier and has to be reopened; restart poold")]
    Latched,
    /// The store was closed.
    #[error("the database is closed")]
    Closed,
    /// A running read prevents the operation.
    #[error("the database is being read; try again")]
    Busy,
    /// One record is damaged; the others are not affected.
    #[error("{} record {}: {why}", .table, key.escape_ascii())]
    Record {
        table: &'static str,
        key: Vec<u8>,
        /// The damage.
        why: RecordError,
    },
    /// A batch queued a message without its body.
    #[error("message {0} came without its body")]
    NoBody(MessageId),
    /// The file to be created exists.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// An export is incomplete, was modified, or has another version.
    #[error("line {line} of the export: {why}")]
    Export {
        /// Counted from 1.
        line: u64,
        /// The problem with the line, for people.
        why: String,
    },
    /// The stream of an export failed.
    #[error("the export cannot be written or read: {0}")]
    Stream(#[source] std::io::Error),
    /// An event cannot be encoded.
    #[error("a record cannot be encoded: {0}")]
    Encode(FrameError),
    /// The file system failed.
    #[error("the database file failed: {0}")]
    Io(#[from] std::io::Error),
    /// Any other failure of the database.
    #[error("the database failed: {0}")]
    Storage(#[source] Box<redb::Error>),
}

/// Damage of one record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Shorter than any record.
    #[error("it is too short for a record")]
    Short,
    /// A record layout that this build does not know.
    #[error("record version {0} is unknown")]
    Version(u8),
    /// The checksum does not match the content.
    #[error("its checksum does not match")]
    Checksum,
    /// The bytes are sound, but not an encoding of an event.
    #[error("it does not decode: {0}")]
    Decode(FrameError),
    /// An event that does not belong into this table.
    #[error("it holds an event of another table")]
    Kind,
    /// The state of a message that is not stored.
    #[error("its message is missing")]
    Orphan,
    /// A message of a session that is not stored.
    #[error("its session {0} is missing")]
    NoSession(SessionId),
}

impl StoreError {
    /// True if nothing may be read or written afterwards: a failure of the storage, not of one record.
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
