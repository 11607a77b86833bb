//! `resize`: sets the size of a session's terminal, for a viewer.

use std::sync::Arc;

use protocol::Reply;
use protocol::request::Resize;

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, tmux_size};
use crate::verb::pane::{self, PaneEffect};

/// Refused while a client is attached: the size is that of its terminal.
pub(super) async fn resize(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Resize) -> Reply {
    let Resize { session, size } = asked;
    let (tmux, size) = (Arc::clone(&daemon.tmux), tmux_size(pool::session::checked_size(size)?));
    pane::act(daemon, op, (session, PaneEffect::Resize), async move |pane| tmux.resize(pane, size).await)
        .await
}
