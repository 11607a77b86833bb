//! Encoding of a record: a version byte, the payload, and a CRC-32 (4 bytes, little endian) of the table's
//! name, the key, the version and the payload. Reading a record detects flipped bits and records in the wrong
//! place.

use crc32fast::Hasher;
use protocol::frame::{decode_record, encode_record};
use protocol::{AgentEvent, Event, Stamped, Step};
use serde::Serialize;

use crate::error::{RecordError, StoreError};
use crate::tables::{CLOCK_KEY, SERVER_KEY, STARTED_KEY, Table};

/// Version of the record layout.
const VERSION: u8 = 1;
/// Length of the checksum, in bytes.
const CRC: usize = 4;
/// Length of the length field in front of the event in a message's payload, in bytes.
const LENGTH: usize = 4;

/// Encodes a record; the payload is given in parts.
pub(crate) fn seal(table: &str, key: &[u8], payload: &[&[u8]]) -> Vec<u8> {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let mut record = Vec::with_capacity(1 + length + CRC);
    record.push(VERSION);
    payload.iter().for_each(|part| record.extend_from_slice(part));
    let sum = checksum(table, key, &record);
    record.extend_from_slice(&sum.to_le_bytes());
    record
}

/// Verifies a record and returns its payload.
pub(crate) fn unseal<'a>(table: &str, key: &[u8], record: &'a [u8]) -> Result<&'a [u8], RecordError> {
    let (sealed, sum) = record.split_last_chunk::<CRC>().ok_or(RecordError::Short)?;
    let (version, payload) = sealed.split_first().ok_or(RecordError::Short)?;
    if checksum(table, key, sealed) != u32::from_le_bytes(*sum) {
        return Err(RecordError::Checksum);
    }
    if *version == VERSION { Ok(payload) } else { Err(RecordError::Version(*version)) }
}

/// Encodes an event as a record.
pub(crate) fn seal_event(table: Table, key: &[u8], event: &Stamped) -> Result<Vec<u8>, StoreError> {
    Ok(seal(table.name(), key, &[&encoded(event)?]))
}

/// Decodes the event in a record.
pub(crate) fn unseal_event(table: Table, key: &[u8], record: &[u8]) -> Result<Stamped, RecordError> {
    decode_record(unseal(table.name(), key, record)?).map_err(RecordError::Decode)
}

/// Encodes a message's record: the event's length (4 bytes, little endian), the event, the body.
pub(crate) fn seal_message(key: &[u8], event: &Stamped, body: &[u8]) -> Result<Vec<u8>, StoreError> {
    let event = encoded(event)?;
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    Ok(seal(Table::Messages.name(), key, &[&length.to_le_bytes(), &event, body]))
}

/// Splits a message's record into the encoded event and the body.
pub(crate) fn split_message<'a>(key: &[u8], record: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), RecordError> {
    let payload = unseal(Table::Messages.name(), key, record)?;
    let (length, rest) = payload.split_first_chunk::<LENGTH>().ok_or(RecordError::Short)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    rest.split_at_checked(length).ok_or(RecordError::Short)
}

/// Decodes the event and the body in a message's record.
pub(crate) fn unseal_message<'a>(key: &[u8], record: &'a [u8]) -> Result<(Stamped, &'a [u8]), RecordError> {
    let (event, body) = split_message(key, record)?;
    Ok((decode_record(event).map_err(RecordError::Decode)?, body))
}

/// Encodes a message's state: the last change, and the steps up to it, without the first (the queueing).
pub(crate) fn seal_state(key: &[u8], change: &Stamped, steps: &[Step]) -> Result<Vec<u8>, StoreError> {
    Ok(seal(Table::MessageStates.name(), key, &[&encoded(&(change, steps))?]))
}

/// Decodes the change and the steps in a state's record.
pub(crate) fn unseal_state(key: &[u8], record: &[u8]) -> Result<(Stamped, Vec<Step>), RecordError> {
    decode_record(unseal(Table::MessageStates.name(), key, record)?).map_err(RecordError::Decode)
}

/// Returns the damage of a record, if any: its checksum, its encoding, the kind of its event.
pub(crate) fn damage(table: Table, key: &[u8], record: &[u8]) -> Option<RecordError> {
    let event = match table {
        Table::Messages => unseal_message(key, record).map(|(event, _)| event),
        Table::MessageStates => unseal_state(key, record).map(|(event, _)| event),
        Table::Quarantine => return unseal(table.name(), key, record).err(),
        Table::Meta if !is_event(key) => return unseal(table.name(), key, record).err(),
        _ => unseal_event(table, key, record),
    };
    match event {
        Ok(stamped) if belongs(table, &stamped.event) => None,
        Ok(_) => Some(RecordError::Kind),
        Err(why) => Some(why),
    }
}

/// True if the row of [`Table::Meta`] with this key is an event, not a number.
pub(crate) fn is_event(key: &[u8]) -> bool {
    [STARTED_KEY, SERVER_KEY, CLOCK_KEY].contains(&key)
}

/// True if events of this kind are stored in this table.
fn belongs(table: Table, event: &Event) -> bool {
    match table {
        Table::Sessions => matches!(event, Event::SessionCreated(_)),
        Table::Messages => matches!(event, Event::MessageQueued(_)),
        Table::MessageStates => matches!(event, Event::MessageChanged { .. }),
        Table::Breakers => matches!(event, Event::BreakerChanged { .. }),
        Table::Activities => matches!(event, Event::Agent(AgentEvent::ActivityChanged { .. })),
        Table::Notes => matches!(event, Event::Agent(AgentEvent::AgentNoted { .. })),
        Table::Thoughts => matches!(event, Event::Agent(AgentEvent::ThoughtPublished { .. })),
        Table::LostConversations => {
            matches!(event, Event::Agent(AgentEvent::ConversationLost { .. }))
        }
        Table::Retired => matches!(event, Event::TagRetired { .. }),
        Table::Operations => matches!(event, Event::OperationBegun { .. } | Event::OperationDone { .. }),
        Table::Meta => {
            matches!(event, Event::PoolStarted { .. } | Event::TmuxServerChanged { .. } | Event::ClockRead(_))
        }
        Table::Journal => event.is_journaled(),
        Table::Quarantine => false,
    }
}

/// Returns the error for a damaged record.
pub(crate) fn record_error(table: Table, key: &[u8], why: RecordError) -> StoreError {
    StoreError::Record { table: table.name(), key: key.to_vec(), why }
}

fn encoded<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    encode_record(value).map_err(StoreError::Encode)
}

fn checksum(table: &str, key: &[u8], sealed: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(table.as_bytes());
    hasher.update(key);
    hasher.update(sealed);
    hasher.finalize()
}
