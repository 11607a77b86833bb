//! Messages as an archive has them.

use protocol::{MessageId, OsBytes};
use serde_json::json;
use store::{Reader, StoreError};

/// Number of messages that are read for an archive at a time.
pub(super) const PAGE: usize = 200;

/// Returns messages with their bodies as JSON lines; of one whose record is damaged, what is wrong with it.
pub(super) fn lines(reader: &Reader, ids: &[MessageId]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for id in ids {
        let line = match reader.message(*id) {
            Ok(None) => continue,
            Ok(Some((message, body))) => json!({ "message": message, "body": OsBytes(body) }),
            Err(error @ StoreError::Record { .. }) => json!({ "id": id.0, "damaged": error.to_string() }),
            Err(error) => return Err(std::io::Error::other(error)),
        };
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    Ok(text)
}
