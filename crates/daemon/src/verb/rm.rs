//! `rm`: removes a session.

use std::sync::Arc;

use protocol::request::Remove;
use protocol::{Reply, Response};

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
    removal::remove(daemon, Some(op), asked).await?;
    Ok(Response::Done)
}
