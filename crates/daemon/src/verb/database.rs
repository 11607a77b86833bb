//! Access to the database for `export`, `backup`, `check` and `compact`.

use std::sync::Arc;

use protocol::{ErrorCode, Refusal};
use store::{Reader, StoreError};

use crate::engine::Daemon;

/// Returns a reader of the database.
pub(super) async fn reader(daemon: &Arc<Daemon>) -> Result<Reader, Refusal> {
    daemon.engine.turn(|turn| turn.reader()).await
}

/// Returns the refusal for a failed read, and has the engine notice it in its next turn: after a failure of
/// the database nothing is answered any more.
pub(super) fn read_failed(daemon: &Daemon, error: &StoreError) -> Refusal {
    daemon.engine.post(|_| ());
    Refusal::storage(error.to_string())
}

/// Returns the refusal for an error of the database.
pub(super) fn refusal(error: &StoreError) -> Refusal {
    let code = match error {
        StoreError::Exists(_) => ErrorCode::Conflict,
        StoreError::Io(_) | StoreError::Busy => ErrorCode::Failed,
        _ => ErrorCode::Storage,
    };
    Refusal::new(code, error.to_string())
}
