//! `rm`: removes a session.

use std::sync::Arc;

use protocol::request::Remove;
use protocol::{ErrorCode, Refusal, Reply, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::{files_in_use, removal, session_view};

pub(super) async fn rm(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Remove) -> Reply {
    // A session without a record was removed by an earlier attempt: this one repeats it, and needs no check.
    if asked.purge
        && !asked.force
        && let Ok(session) = session_view::resolve(daemon, asked.session.clone()).await
    {
        files_in_use::check_unused(daemon, session.id).await?;
    }
    let named = asked.session.clone();
    removal::remove(daemon, op, asked).await.map_err(|refusal| without_removal(refusal, &named))
}

/// Adds to the error of an end that takes too long that the session is not removed: the end continues, but the removal
/// does not, and has to be repeated.
fn without_removal(refusal: Refusal, session: &SessionRef) -> Refusal {
    match refusal.code {
        ErrorCode::Timeout => Refusal::timeout(format!(
            "{}; it is not removed yet: unless it is ephemeral, repeat `poolctl rm {session}` once it has ended",
            refusal.message
        )),
        _ => refusal,
    }
}
