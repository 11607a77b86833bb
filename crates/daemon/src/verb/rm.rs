//! `rm`: removes a session.

use std::sync::Arc;

use protocol::request::Remove;
use protocol::{Reply, Response};

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::{files_in_use, removal, session_view};

pub(super) async fn rm(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Remove) -> Reply {
    // Its record may be gone: then this is repeated.
    if asked.purge
        && !asked.force
        && let Ok(session) = session_view::resolve(daemon, asked.session.clone()).await
    {
        files_in_use::check_unused(daemon, session.id).await?;
    }
    removal::remove(daemon, Some(op), asked).await?;
    Ok(Response::Done)
}
