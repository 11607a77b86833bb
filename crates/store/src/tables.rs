//! Tables and their keys. Keys and values are bytes; a number as a key is 8 bytes, big endian, so that the
//! rows are in numeric order.

use protocol::{OpId, SessionId};
use redb::TableDefinition;

/// A table. Every value is a record: a version, a payload, a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Singletons. Key: one of the constants below. Value: a number or an event.
    Meta,
    /// Key: session id. Value: `SessionCreated` with the session's current state.
    Sessions,
    /// Append-only, and part of the journal. Key: message id. Value: the `MessageQueued` that queued it, and
    /// its body.
    Messages,
    /// Separate from the messages, so that a change never rewrites a body. Key: message id. Value: the last
    /// `MessageChanged`, and the steps since the message was queued; no row before the first change.
    MessageStates,
    /// Key: session id, kind. Value: `BreakerChanged`; no row while the breaker has no failures.
    Breakers,
    /// Key: session id. Value: `ActivityChanged`; no row before the agent's first activity.
    Activities,
    /// Key: session id. Value: `AgentNoted`; no row before the first notes.
    Notes,
    /// Key: session id. Value: `ThoughtPublished`; no row before the first thought.
    Thoughts,
    /// Key: session id. Value: the newest `ConversationLost`; no row before the first.
    LostConversations,
    /// Key: tag. Value: `TagRetired`.
    Retired,
    /// Key: `r` and 16 bytes, or `n` and the text. Value: `OperationBegun` or `OperationDone`.
    Operations,
    /// For subscribers; trimmed from its old end. Key: sequence number. Value: the event. The event that
    /// queued a message moves here when the message is forgotten.
    Journal,
    /// Records that could not be read. Key: the table's name, a zero byte, the record's key. Value: the
    /// length of the reason (2 bytes, little endian), the reason, the original bytes.
    Quarantine,
}

/// Key in [`Table::Meta`]: the schema version, a number.
pub(crate) const SCHEMA_KEY: &[u8] = b"schema";
/// Key in [`Table::Meta`]: a number up to which no sequence number is given out again. Written only where
/// rows are removed; otherwise the last keys of the journal and of the messages tell.
pub(crate) const SEQ_KEY: &[u8] = b"seq";
/// Key in [`Table::Meta`]: the last sequence number trimmed from the journal.
pub(crate) const FLOOR_KEY: &[u8] = b"floor";
/// Key in [`Table::Meta`]: the `N` of the next `sess_N`, a number.
pub(crate) const NEXT_SESSION_KEY: &[u8] = b"next_session";
/// Key in [`Table::Meta`]: `PoolStarted` with the current epoch, build and boot.
pub(crate) const STARTED_KEY: &[u8] = b"started";
/// Key in [`Table::Meta`]: `ClockRead`.
pub(crate) const CLOCK_KEY: &[u8] = b"clock";
/// Key in [`Table::Meta`]: `TmuxServerChanged` with the current server.
pub(crate) const SERVER_KEY: &[u8] = b"server";
/// Key in [`Table::Meta`]: the random id of the pool's timeline; see [`crate::Timeline`].
pub(crate) const TIMELINE_KEY: &[u8] = b"timeline";
/// Key in [`Table::Meta`]: present if the file was made as a copy of another database and no pool has adopted
/// it yet.
pub(crate) const COPIED_KEY: &[u8] = b"copied";
/// Value of [`COPIED_KEY`] in a backup.
pub(crate) const FROM_BACKUP: u64 = 1;
/// Value of [`COPIED_KEY`] in a database made from an export.
pub(crate) const FROM_EXPORT: u64 = 2;

/// A table as redb sees it.
pub(crate) type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

impl Table {
    /// All tables; a file has either all of them or none.
    pub(crate) const ALL: [Self; 13] = [
        Self::Meta,
        Self::Sessions,
        Self::Messages,
        Self::MessageStates,
        Self::Breakers,
        Self::Activities,
        Self::Notes,
        Self::Thoughts,
        Self::LostConversations,
        Self::Retired,
        Self::Operations,
        Self::Journal,
        Self::Quarantine,
    ];

    /// Its name in the file, which ends in the version of its rows' layout. The name of [`Table::Meta`] never
    /// changes: the schema version is read from it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Sessions => "sessions-1",
            Self::Messages => "messages-1",
            Self::MessageStates => "message-states-1",
            Self::Breakers => "breakers-1",
            Self::Activities => "activities-1",
            Self::Notes => "notes-1",
            Self::Thoughts => "thoughts-1",
            Self::LostConversations => "lost-conversations-1",
            Self::Retired => "retired-1",
            Self::Operations => "operations-1",
            Self::Journal => "journal-1",
            Self::Quarantine => "quarantine-1",
        }
    }

    /// Its name in exports and reports, without the version.
    pub(crate) fn as_str(self) -> &'static str {
        self.name().rsplit_once('-').map_or(self.name(), |(name, _)| name)
    }

    /// True if its keys are numbers.
    pub(crate) const fn is_numbered(self) -> bool {
        matches!(
            self,
            Self::Sessions
                | Self::Messages
                | Self::MessageStates
                | Self::Activities
                | Self::Notes
                | Self::Thoughts
                | Self::LostConversations
                | Self::Journal
        )
    }

    pub(crate) const fn definition(self) -> Definition {
        TableDefinition::new(self.name())
    }
}

pub(crate) fn number_key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Returns the number that a key stands for, if it has the length of one.
pub(crate) fn key_number(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// Returns the key of an operation.
pub(crate) fn op_key(op: &OpId) -> Vec<u8> {
    match op {
        OpId::Random(bytes) => [b"r", bytes.as_slice()].concat(),
        OpId::Named(text) => [b"n", text.as_bytes()].concat(),
    }
}

pub(crate) fn breaker_key(session: SessionId, kind: &str) -> Vec<u8> {
    [number_key(session.0).as_slice(), kind.as_bytes()].concat()
}
