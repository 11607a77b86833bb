//! `input`: writes bytes to a session's terminal, for a viewer.

use std::sync::Arc;

use protocol::request::{INPUT_MAX, Input};
use protocol::{OsBytes, Refusal, Reply};

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::pane::{self, PaneEffect};

pub(super) async fn input(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Input) -> Reply {
    let Input { session, bytes: OsBytes(bytes) } = asked;
    if bytes.is_empty() || bytes.len() > INPUT_MAX {
        let why = format!("input has 1 to {INPUT_MAX} bytes");
        return Err(Refusal::usage(why));
    }
    let tmux = Arc::clone(&daemon.tmux);
    let effect = PaneEffect::Input(String::from_utf8_lossy(&bytes).into_owned());
    pane::act(daemon, op, (session, effect), async move |pane| tmux.input(pane, &bytes).await).await
}
