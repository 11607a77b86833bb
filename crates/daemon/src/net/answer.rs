//! Answers to calls on a connection.

use protocol::{ErrorCode, Reply};

use crate::engine::Daemon;
use crate::host::outbox::{Outbox, PeerGone};
use crate::host::shutdown_progress::Step;

/// Answers a call, unless the daemon is ending and left it undecided: then the client asks the next daemon.
pub(super) fn answer_call(
    daemon: &Daemon,
    outbox: &Outbox,
    (id, reply): (u64, Reply),
) -> Result<(), PeerGone> {
    let is_undecided = reply.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Storage);
    if is_undecided && daemon.shutdown.has_begun(Step::Engine) {
        return Ok(());
    }
    outbox.reply(id, reply)
}
