//! `keys`: sends raw keys to a session's terminal.

use std::sync::Arc;

use protocol::request::Keys;
use protocol::{Refusal, Reply};
use tmux::keys::Key;

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::pane::{self, PaneEffect};

pub(super) async fn keys(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Keys) -> Reply {
    let keys = tmux::keys::parse(&asked.keys).map_err(|e| Refusal::usage(e.to_string()))?;
    if keys.is_empty() {
        return Err(Refusal::usage("name at least one key, as in `poolctl keys NAME Enter`"));
    }
    let (tmux, typed) = (Arc::clone(&daemon.tmux), keys.iter().filter_map(Key::character).collect());
    let effect = PaneEffect::Keys(typed);
    pane::act(daemon, op, (asked.session, effect), async move |pane| tmux.keys(pane, &keys).await).await
}
