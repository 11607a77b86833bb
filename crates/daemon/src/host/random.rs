//! Random identifiers, from the system's random source.

use std::io;

use pool::slots::RunIdentity;
use protocol::{ErrorCode, Refusal, Tag};

/// Returns a random tag.
///
/// # Errors
/// The system's random source failed.
pub(crate) fn tag() -> io::Result<Tag> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(Tag(bytes))
}

/// Returns the random tag and conversation id of a new incarnation.
///
/// # Errors
/// Failed: the system's random source failed.
pub(crate) fn identity() -> Result<RunIdentity, Refusal> {
    let failed = |e: io::Error| Refusal::new(ErrorCode::Failed, format!("no random numbers: {e}"));
    Ok(RunIdentity { tag: tag().map_err(failed)?, conversation: uuid().map_err(failed)? })
}

/// Returns a random UUID, version 4.
fn uuid() -> io::Result<String> {
    let Tag(mut bytes) = tag()?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = Tag(bytes).to_string();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_random_and_well_formed() {
        assert_ne!(tag().unwrap(), tag().unwrap());
        let uuid = uuid().unwrap();
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
    }
}
