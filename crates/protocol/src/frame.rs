//! The frame codec: a length, then a payload in bincode. The only file that names bincode, and the
//! only one that a change of encoding would touch. Nothing here does input or output.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::refusal::ErrorCode;

/// The longest payload, in bytes. Holds the longest message body four times over; what is longer
/// comes in parts. Checked before anything is allocated, so a hostile length costs nothing.
pub const FRAME_MAX: usize = 1 << 20;
/// The longest record, in bytes. What is taken in is bounded so that every record fits a frame ([`crate::bounds`]);
/// one that does not all the same is a fault of this program and no failure of the disk: it is written.
pub const RECORD_MAX: usize = 16 * FRAME_MAX;
/// Bytes of the length in front of each payload.
pub const PREFIX_LEN: usize = 4;
/// The most that is asked of a socket at a time, in bytes: memory grows with the bytes that came,
/// never with the length that a peer claims.
pub const CHUNK: usize = 16 * 1024;

/// bincode counts a number by its width in memory: 8 for a `u64` that takes one byte. Eight times
/// the frame's limit therefore admits every payload within it, and still refuses a length bomb.
const DECODE_LIMIT: usize = 8 * FRAME_MAX;
/// Likewise of a record.
const RECORD_DECODE_LIMIT: usize = 8 * RECORD_MAX;

/// What is wrong with a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than [`FRAME_MAX`].
    #[error("a frame of {0} bytes; at most {FRAME_MAX} are allowed")]
    TooLong(usize),
    /// No payload at all.
    #[error("an empty frame")]
    Empty,
    /// Bytes after the value.
    #[error("{0} bytes too many at the end of a frame")]
    Trailing(usize),
    /// A value that cannot be written.
    #[error("a value cannot be encoded: {0}")]
    Encode(String),
    /// Bytes that are not the value that was expected.
    #[error("a frame that is not of this protocol: {0}")]
    Decode(String),
    /// The stream ended within a frame.
    #[error("the connection ended within a frame")]
    Truncated,
    /// A frame that has no place here.
    #[error("an unexpected frame: {0}")]
    Unexpected(&'static str),
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
}

impl FrameError {
    /// The code under which `poolctl` reports it.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Io(_) | Self::Truncated => ErrorCode::Unavailable,
            _ => ErrorCode::Protocol,
        }
    }
}

/// A value as a whole frame: the length, then the payload.
///
/// # Errors
/// [`FrameError::TooLong`], or a value that serde refuses.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    Ok(wrap(&encode_payload(value)?))
}

/// The payload of a frame, without a length in front.
///
/// # Errors
/// As [`encode`].
pub fn encode_payload<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    encode_within(value, FRAME_MAX)
}

fn encode_within<T: Serialize + ?Sized>(value: &T, max: usize) -> Result<Vec<u8>, FrameError> {
    let payload = bincode::serde::encode_to_vec(value, bincode::config::standard())
        .map_err(|error| FrameError::Encode(error.to_string()))?;
    if payload.len() > max { Err(FrameError::TooLong(payload.len())) } else { Ok(payload) }
}

/// A ready payload of at most [`FRAME_MAX`] bytes, as [`encode_payload`] and [`crate::job::nudge`]
/// make it, with its length in front.
#[must_use]
pub fn wrap(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(PREFIX_LEN + payload.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The value of a payload; the payload must hold it and nothing more.
///
/// # Errors
/// Bytes that are not such a value, bytes too many, or more than [`FRAME_MAX`].
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

/// A value as the store keeps it: the same encoding, of up to [`RECORD_MAX`] bytes.
///
/// # Errors
/// As [`encode`].
pub fn encode_record<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    encode_within(value, RECORD_MAX)
}

/// The value of a record.
///
/// # Errors
/// As [`decode`].
pub fn decode_record<T: DeserializeOwned>(record: &[u8]) -> Result<T, FrameError> {
    if record.len() > RECORD_MAX {
        return Err(FrameError::TooLong(record.len()));
    }
    let config = bincode::config::standard().with_limit::<RECORD_DECODE_LIMIT>();
    whole(record, bincode::serde::decode_from_slice(record, config))
}

/// The length that a prefix announces, in bytes: 1 to [`FRAME_MAX`].
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

/// Collects bytes as a stream brings them and gives out whole payloads.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    start: usize,
}

impl Incoming {
    /// The next payload, once all of it is here.
    ///
    /// # Errors
    /// A length that is not allowed: the stream cannot be read any further.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let waiting = &self.bytes[self.start..];
        let Some((prefix, rest)) = waiting.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
        let length = length(*prefix)?;
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let payload = payload.to_vec();
        self.start += PREFIX_LEN + length;
        Ok(Some(payload))
    }

    /// Where a reader appends what comes next; room for [`CHUNK`] bytes is there.
    pub fn space(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.reserve(CHUNK);
        &mut self.bytes
    }

    /// Whether nothing is left over: an end here is a clean end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }
}
