//! Lines of an export: each is one row, or a message with its state. They are readable by people and scripts,
//! and yet exact: a row that JSON cannot express exactly is stored as bytes.

use protocol::{Event, MessageStatus, OsBytes, Seq, Stamped, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::migrate;
use crate::record::{
    is_event, seal, seal_event, seal_message, seal_state, unseal, unseal_event, unseal_message, unseal_state,
};
use crate::schema::SCHEMA;
use crate::tables::{Table, key_number, number_key};

/// Schema of the exports of the last development builds before 0.1. Their rows are those of schema 1.
const UNRELEASED: u32 = 5;
const _: () = assert!(SCHEMA < UNRELEASED, "exports of a released schema 5 need a new format version");

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) schema: u32,
}

impl Header {
    pub(super) fn current() -> Self {
        Self { format: "tmux-pool export".to_owned(), version: 1, schema: SCHEMA }
    }

    /// Returns the schema version of the rows; fails if this build cannot read the export.
    pub(super) fn version_of_rows(&self) -> Result<u32, String> {
        let (current, oldest) = (Self::current(), migrate::oldest());
        if self.format == current.format && self.version == current.version {
            match self.schema {
                UNRELEASED => return Ok(SCHEMA),
                schema if (oldest..=SCHEMA).contains(&schema) => return Ok(schema),
                _ => {}
            }
        }
        Err(format!(
            "it is {:?}, version {}, schema {}, but this build reads {:?}, version {}, schema {oldest} to {SCHEMA}; \
             import it with the build that wrote it",
            self.format, self.version, self.schema, current.format, current.version
        ))
    }
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Footer {
    pub(super) end: End,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    /// Number of lines between the first and this one.
    pub(super) lines: u64,
    /// Checksum of all bytes before this line, hexadecimal.
    pub(super) crc32: String,
}

/// A line of rows.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    table: String,
    key: Key,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Event>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<OsBytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed: Option<LastChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<MessageStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<Step>>,
    /// The stored record, if the other fields cannot express it exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<OsBytes>,
}

/// Sequence number and time of a message's last change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastChange {
    seq: Seq,
    at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Key {
    Number(u64),
    Bytes(OsBytes),
}

impl Default for Key {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// A row as the database stores it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredRow {
    pub(super) table: Table,
    pub(super) key: Vec<u8>,
    pub(super) record: Vec<u8>,
}

impl Line {
    /// Returns the line of a row; a message's includes its state, if it has one. Returns none if the line
    /// would not be exact.
    pub(super) fn of(row: &StoredRow, state: Option<&StoredRow>) -> Option<Self> {
        let line = Self::readable(row, state)?;
        let parsed =
            serde_json::to_vec(&line).ok().and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let rows = parsed?.rows().ok()?;
        rows.iter().eq([row].into_iter().chain(state)).then_some(line)
    }

    /// Returns the line that holds a row as bytes.
    pub(super) fn raw(row: &StoredRow) -> Self {
        let record = Some(OsBytes(row.record.clone()));
        Self { record, ..Self::at(row.table, &row.key) }
    }

    fn at(table: Table, key: &[u8]) -> Self {
        let number = key_number(key).filter(|_| table.is_numbered()).map(Key::Number);
        let key = number.unwrap_or_else(|| Key::Bytes(OsBytes(key.to_vec())));
        Self { table: table.as_str().to_owned(), key, ..Self::default() }
    }

    fn readable(row: &StoredRow, state: Option<&StoredRow>) -> Option<Self> {
        let StoredRow { table, key, record } = row;
        let line = Self::at(*table, key);
        match table {
            Table::Quarantine | Table::MessageStates => None,
            Table::Meta if !is_event(key) => {
                let number = Some(key_number(unseal(table.name(), key, record).ok()?)?);
                Some(Self { number, ..line })
            }
            Table::Messages => {
                let (queued, body) = unseal_message(key, record).ok()?;
                let line = Self { body: Some(OsBytes(body.to_vec())), ..line }.with_event(queued);
                match state {
                    Some(state) => line.with_state(state),
                    None => Some(line),
                }
            }
            _ => Some(line.with_event(unseal_event(*table, key, record).ok()?)),
        }
    }

    fn with_event(self, stamped: Stamped) -> Self {
        Self { seq: Some(stamped.seq), at: Some(stamped.at), event: Some(stamped.event), ..self }
    }

    fn with_state(self, state: &StoredRow) -> Option<Self> {
        let (change, steps) = unseal_state(&state.key, &state.record).ok()?;
        let Event::MessageChanged { status, .. } = change.event else { return None };
        let changed = Some(LastChange { seq: change.seq, at: change.at });
        Some(Self { changed, status: Some(*status), steps: Some(steps), ..self })
    }

    /// Returns the rows of the line.
    pub(super) fn rows(self) -> Result<Vec<StoredRow>, String> {
        let table = Table::ALL.into_iter().find(|table| table.as_str() == self.table);
        let table = table.ok_or_else(|| format!("there is no table {:?}", self.table))?;
        let key = match self.key {
            Key::Number(number) => number_key(number).to_vec(),
            Key::Bytes(OsBytes(bytes)) => bytes,
        };
        let incomplete = || "it does not describe a whole row".to_owned();
        let stamped = match (self.seq, self.at, self.event) {
            (Some(seq), Some(at), Some(event)) => Some(Stamped { seq, at, event }),
            _ => None,
        };
        let sealed = |sealed: Result<Vec<u8>, StoreError>| sealed.map_err(|error| error.to_string());
        let record = match (self.record, self.number, &stamped) {
            (Some(OsBytes(record)), _, _) => record,
            (None, Some(number), _) => seal(table.name(), &key, &[&number_key(number)]),
            (None, None, Some(queued)) if table == Table::Messages => {
                sealed(seal_message(&key, queued, &self.body.ok_or_else(incomplete)?.0))?
            }
            (None, None, Some(stamped)) => sealed(seal_event(table, &key, stamped))?,
            (None, None, None) => return Err(incomplete()),
        };
        let mut rows = vec![StoredRow { table, key, record }];
        if let (Some(LastChange { seq, at }), Some(status), Some(steps)) =
            (self.changed, self.status, self.steps)
        {
            let Some(Event::MessageQueued(message)) = stamped.map(|queued| queued.event) else {
                return Err(incomplete());
            };
            let (id, session) = (message.id, message.session);
            let event = Event::MessageChanged { id, session, status: Box::new(status) };
            let (table, key) = (Table::MessageStates, number_key(id.0).to_vec());
            let record = sealed(seal_state(&key, &Stamped { seq, at, event }, &steps))?;
            rows.push(StoredRow { table, key, record });
        }
        Ok(rows)
    }
}
