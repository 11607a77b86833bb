//! `rm`: removes a session.

use std::sync::Arc;

use protocol::request::Remove;
use protocol::{Reply, Response};

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::removal;

pub(super) async fn rm(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Remove) -> Reply {
    removal::remove(daemon, Some(op), asked).await?;
    Ok(Response::Done)
}
