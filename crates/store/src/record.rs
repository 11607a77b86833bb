//! One record: a version byte, the payload, and a CRC-32 (4 bytes, little endian) of the table's
//! name, the key, the version and the payload. A flipped bit, and a record in the wrong place, is
//! found when it is read.

use crc32fast::Hasher;
use protocol::Stamped;
use protocol::frame::{decode_record, encode_record};

use crate::error::{RecordError, StoreError};
use crate::tables::Table;

/// Version of this layout.
const VERSION: u8 = 1;
/// Bytes of the checksum.
const CRC: usize = 4;
/// Bytes of the length in front of the event in a message's payload.
const LENGTH: usize = 4;

/// A record with this payload.
pub(crate) fn seal(table: Table, key: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(1 + payload.len() + CRC);
    record.push(VERSION);
    record.extend_from_slice(payload);
    let sum = checksum(table, key, &record);
    record.extend_from_slice(&sum.to_le_bytes());
    record
}

/// The payload of a record.
pub(crate) fn unseal<'a>(table: Table, key: &[u8], record: &'a [u8]) -> Result<&'a [u8], RecordError> {
    let (sealed, sum) = record.split_last_chunk::<CRC>().ok_or(RecordError::Short)?;
    let (version, payload) = sealed.split_first().ok_or(RecordError::Short)?;
    if checksum(table, key, sealed) != u32::from_le_bytes(*sum) {
        return Err(RecordError::Checksum);
    }
    if *version == VERSION { Ok(payload) } else { Err(RecordError::Version(*version)) }
}

/// A record that holds an event.
pub(crate) fn seal_event(table: Table, key: &[u8], event: &Stamped) -> Result<Vec<u8>, StoreError> {
    Ok(seal(table, key, &encode_record(event).map_err(StoreError::Encode)?))
}

/// The event that a record holds.
pub(crate) fn unseal_event(table: Table, key: &[u8], record: &[u8]) -> Result<Stamped, RecordError> {
    decode_record(unseal(table, key, record)?).map_err(RecordError::Decode)
}

/// A message's record: the event's length (4 bytes, little endian), the event, the body.
pub(crate) fn seal_message(key: &[u8], event: &Stamped, body: &[u8]) -> Result<Vec<u8>, StoreError> {
    let event = encode_record(event).map_err(StoreError::Encode)?;
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    Ok(seal(Table::Messages, key, &[length.to_le_bytes().as_slice(), &event, body].concat()))
}

/// The event and the body of a message's record.
pub(crate) fn unseal_message<'a>(key: &[u8], record: &'a [u8]) -> Result<(Stamped, &'a [u8]), RecordError> {
    let payload = unseal(Table::Messages, key, record)?;
    let (length, rest) = payload.split_first_chunk::<LENGTH>().ok_or(RecordError::Short)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (event, body) = rest.split_at_checked(length).ok_or(RecordError::Short)?;
    Ok((decode_record(event).map_err(RecordError::Decode)?, body))
}

/// The error for one damaged record.
pub(crate) fn damaged(table: Table, key: &[u8], why: RecordError) -> StoreError {
    StoreError::Record { table: table.name(), key: key.to_vec(), why }
}

fn checksum(table: Table, key: &[u8], sealed: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(table.name().as_bytes());
    hasher.update(key);
    hasher.update(sealed);
    hasher.finalize()
}
