//! The frame codec: a length, then a payload in bincode. The only file that names bincode, and the only one
//! that a change of the encoding would touch. It does no I/O.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::refusal::ErrorCode;

/// Maximum length of a payload, in bytes: four times the longest message body. Longer values are sent in
/// parts. Checked before any allocation, so a hostile length costs nothing.
pub const FRAME_MAX: usize = 1 << 20;
/// Maximum length of a record, in bytes. Input is limited so that every record fits a frame
/// ([`crate::bounds`]). A longer record would be a defect of this program, not a failure of the disk, and is
/// stored.
pub const RECORD_MAX: usize = 16 * FRAME_MAX;
/// Length of the prefix of each payload, in bytes.
pub const PREFIX_LEN: usize = 4;
/// Maximum number of bytes read from a socket at a time: memory grows with the bytes received, never with the
/// length that a peer announces.
pub const CHUNK: usize = 16 * 1024;

/// Decoding limit for a frame. bincode counts a number by its width in memory: 8 for a `u64` that takes one
/// byte. Eight times the maximum length admits every valid payload and still refuses a length bomb.
const DECODE_LIMIT: usize = 8 * FRAME_MAX;
/// Decoding limit for a record, by the same rule.
const RECORD_DECODE_LIMIT: usize = 8 * RECORD_MAX;

/// Errors of frames.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The payload is longer than [`FRAME_MAX`].
    #[error("a frame of {0} bytes; at most {FRAME_MAX} are allowed")]
    TooLong(usize),
    /// The payload is empty.
    #[error("an empty frame")]
    Empty,
    /// Bytes follow the value.
    #[error("{0} bytes too many at the end of a frame")]
    Trailing(usize),
    /// The value cannot be encoded.
    #[error("a value cannot be encoded: {0}")]
    Encode(String),
    /// The bytes are not a value of the expected type.
    #[error("a frame that is not of this protocol: {0}")]
    Decode(String),
    /// The stream ended within a frame.
    #[error("the connection ended within a frame")]
    Truncated,
    /// The frame is not allowed here.
    #[error("an unexpected frame: {0}")]
    Unexpected(&'static str),
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
}

impl FrameError {
    /// Returns the code under which `poolctl` reports the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Io(_) | Self::Truncated => ErrorCode::Unavailable,
            _ => ErrorCode::Protocol,
        }
    }
}

/// Encodes a value as a whole frame: the length, then the payload.
///
/// # Errors
/// [`FrameError::TooLong`], or a value that serde refuses.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    Ok(wrap(&encode_payload(value)?))
}

/// Encodes a value as a payload, without the length.
pub fn encode_payload<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    encode_within(value, FRAME_MAX)
}

fn encode_within<T: Serialize + ?Sized>(value: &T, max: usize) -> Result<Vec<u8>, FrameError> {
    let payload = bincode::serde::encode_to_vec(value, bincode::config::standard())
        .map_err(|error| FrameError::Encode(error.to_string()))?;
    if payload.len() > max { Err(FrameError::TooLong(payload.len())) } else { Ok(payload) }
}

/// Prepends the length to an encoded payload of at most [`FRAME_MAX`] bytes, as made by [`encode_payload`]
/// and [`crate::job::nudge`].
pub fn wrap(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(PREFIX_LEN + payload.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Decodes a payload, which must be exactly one value.
///
/// # Errors
/// Bytes that are not such a value, bytes after it, or more than [`FRAME_MAX`] bytes.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    if payload.len() > FRAME_MAX {
        return Err(FrameError::TooLong(payload.len()));
    }
    let config = bincode::config::standard().with_limit::<DECODE_LIMIT>();
    whole(payload, bincode::serde::decode_from_slice(payload, config))
}

fn whole<T>(
    payload: &[u8],
    decoded: Result<(T, usize), bincode::error::DecodeError>,
) -> Result<T, FrameError> {
    let (value, used) = decoded.map_err(|error| FrameError::Decode(error.to_string()))?;
    if used == payload.len() { Ok(value) } else { Err(FrameError::Trailing(payload.len() - used)) }
}

/// Encodes a value for the store: the same encoding, with up to [`RECORD_MAX`] bytes.
pub fn encode_record<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    encode_within(value, RECORD_MAX)
}

/// Decodes a record of the store.
pub fn decode_record<T: DeserializeOwned>(record: &[u8]) -> Result<T, FrameError> {
    if record.len() > RECORD_MAX {
        return Err(FrameError::TooLong(record.len()));
    }
    let config = bincode::config::standard().with_limit::<RECORD_DECODE_LIMIT>();
    whole(record, bincode::serde::decode_from_slice(record, config))
}

/// Returns the length that a prefix announces, in bytes: 1 to [`FRAME_MAX`].
///
/// # Errors
/// [`FrameError::Empty`], [`FrameError::TooLong`].
pub fn length(prefix: [u8; PREFIX_LEN]) -> Result<usize, FrameError> {
    match usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX) {
        0 => Err(FrameError::Empty),
        length if length > FRAME_MAX => Err(FrameError::TooLong(length)),
        length => Ok(length),
    }
}

/// A buffer that collects the bytes of a stream and returns whole payloads.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    /// Removes and returns the next payload once it is complete.
    ///
    /// # Errors
    /// An invalid length: the stream cannot be read any further.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let waiting = &self.bytes[self.start..];
        let Some((prefix, rest)) = waiting.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
        let length = length(*prefix)?;
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let payload = payload.to_vec();
        self.start += PREFIX_LEN + length;
        Ok(Some(payload))
    }

    /// Returns the buffer to which a reader appends, with room for [`CHUNK`] bytes.
    pub fn space(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.reserve(CHUNK);
        &mut self.bytes
    }

    /// True if no bytes are left over, so that an end of the stream here is a clean end.
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }
}
