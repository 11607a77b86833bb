//! `ls`: lists sessions.

use std::sync::Arc;

use protocol::request::List;
use protocol::{Reply, Response};

use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::verb::session_view;

pub(super) async fn ls(daemon: &Arc<Daemon>, filter: List) -> Reply {
    let (socket, context) = (daemon.tmux_socket(), Arc::clone(daemon));
    let read = move |turn: &mut Turn<'_>| {
        // Views are large: a growing vector would copy them repeatedly.
        let mut views = Vec::with_capacity(turn.pool().sessions().count());
        let listed = turn.pool().sessions().filter(|s| pool::session::matches_filter(s, &filter));
        views.extend(listed.map(|s| session_view::view_of(turn, &context, &socket, s)));
        Response::Sessions(views)
    };
    daemon.engine.turn(read).await
}
