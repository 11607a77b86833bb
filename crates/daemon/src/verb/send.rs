//! `send`: queues a message.

use std::sync::Arc;

use protocol::request::Send;
use protocol::{OpId, Refusal, Reply, Token};

use crate::decide::{idempotency, queue};
use crate::engine::{Daemon, Turn};

/// Checks a message, and samples the disk. Returns the decision, for a turn: one commit, answered once it is
/// on disk.
///
/// # Errors
/// Usage: no operation id, or the text is not valid.
pub(crate) async fn send(
    daemon: &Arc<Daemon>,
    (op, lock): (Option<OpId>, Option<Token>),
    mut asked: Send,
) -> Result<impl FnOnce(&mut Turn<'_>) -> Reply + std::marker::Send + use<>, Refusal> {
    let op = idempotency::check_id(op)?;
    let body = queue::body(&mut asked)?;
    daemon.refresh_disk(body.bytes.len() as u64).await;
    let context = Arc::clone(daemon);
    Ok(move |turn: &mut Turn<'_>| queue::send_under(turn, &context, (&op, lock), (&asked, body)))
}
