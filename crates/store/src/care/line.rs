//! A line of an export: one row, or a message with its state. It is for people and scripts to read, and
//! yet exact: whatever a line cannot say exactly, it holds as bytes.

use protocol::text::OsBytes;
use protocol::{Event, MessageStatus, Seq, Stamped, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::record::{
    is_event, seal, seal_event, seal_message, seal_state, unseal, unseal_event, unseal_message, unseal_state,
};
use crate::tables::{Table, key_number, number_key};

/// The schema of the first exports.
const FIRST: u32 = 2;

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
        Self { format: "tmux-pool export".to_owned(), version: 1, schema: crate::SCHEMA }
    }

    /// Whether this build can read what follows.
    pub(super) fn is_readable(&self) -> bool {
        let Self { format, version, schema } = Self::current();
        self.format == format && self.version == version && (FIRST..=schema).contains(&self.schema)
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
    /// Lines between the first and this one.
    pub(super) lines: u64,
    /// Of all bytes before this line, in hexadecimal.
    pub(super) crc32: String,
}

/// Any line in between.
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
    changed: Option<Changed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<MessageStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<Step>>,
    /// The record as it is stored, where it says more than the rest could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<OsBytes>,
}

/// The event of the last change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changed {
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

/// A row to be stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) table: Table,
    pub(super) key: Vec<u8>,
    pub(super) record: Vec<u8>,
}

impl Line {
    /// The line of a row; of a message and of its state, where it has one. None where that would not be
    /// exact.
    pub(super) fn of(row: &Row, state: Option<&Row>) -> Option<Self> {
        let line = Self::said(row, state)?;
        let exact =
            serde_json::to_vec(&line).ok().and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let rows = exact?.rows().ok()?;
        rows.iter().eq([row].into_iter().chain(state)).then_some(line)
    }

    /// The line that holds a row as bytes.
    pub(super) fn raw(row: &Row) -> Self {
        let record = Some(OsBytes(row.record.clone()));
        Self { record, ..Self::at(row.table, &row.key) }
    }

    fn at(table: Table, key: &[u8]) -> Self {
        let number = key_number(key).filter(|_| table.is_numbered()).map(Key::Number);
        let key = number.unwrap_or_else(|| Key::Bytes(OsBytes(key.to_vec())));
        Self { table: table.word().to_owned(), key, ..Self::default() }
    }

    fn said(row: &Row, state: Option<&Row>) -> Option<Self> {
        let Row { table, key, record } = row;
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

    fn with_state(self, state: &Row) -> Option<Self> {
        let (change, steps) = unseal_state(&state.key, &state.record).ok()?;
        let Event::MessageChanged { status, .. } = change.event else { return None };
        let changed = Some(Changed { seq: change.seq, at: change.at });
        Some(Self { changed, status: Some(*status), steps: Some(steps), ..self })
    }

    /// The rows that it stands for.
    pub(super) fn rows(self) -> Result<Vec<Row>, String> {
        let table = Table::ALL.into_iter().find(|table| table.word() == self.table);
        let table = table.ok_or_else(|| format!("there is no table {:?}", self.table))?;
        let key = match self.key {
            Key::Number(number) => number_key(number).to_vec(),
            Key::Bytes(OsBytes(bytes)) => bytes,
        };
        let unsaid = || "it does not say what the row is".to_owned();
        let stamped = match (self.seq, self.at, self.event) {
            (Some(seq), Some(at), Some(event)) => Some(Stamped { seq, at, event }),
            _ => None,
        };
        let sealed = |sealed: Result<Vec<u8>, StoreError>| sealed.map_err(|error| error.to_string());
        let record = match (self.record, self.number, &stamped) {
            (Some(OsBytes(record)), _, _) => record,
            (None, Some(number), _) => seal(table.name(), &key, &[&number_key(number)]),
            (None, None, Some(queued)) if table == Table::Messages => {
                sealed(seal_message(&key, queued, &self.body.ok_or_else(unsaid)?.0))?
            }
            (None, None, Some(stamped)) => sealed(seal_event(table, &key, stamped))?,
            (None, None, None) => return Err(unsaid()),
        };
        let mut rows = vec![Row { table, key, record }];
        if let (Some(Changed { seq, at }), Some(status), Some(steps)) =
            (self.changed, self.status, self.steps)
        {
            let Some(Event::MessageQueued(message)) = stamped.map(|queued| queued.event) else {
                return Err(unsaid());
            };
            let (id, session) = (message.id, message.session);
            let event = Event::MessageChanged { id, session, status: Box::new(status) };
            let (table, key) = (Table::MessageStates, number_key(id.0).to_vec());
            let record = sealed(seal_state(&key, &Stamped { seq, at, event }, &steps))?;
            rows.push(Row { table, key, record });
        }
        Ok(rows)
    }
}
