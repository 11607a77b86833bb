//! `ls`: lists sessions.

use std::sync::Arc;

use protocol::request::List;
use protocol::{Reply, Response};

use crate::engine::{Daemon, Turn};
use crate::verb::session_view;

pub(super) async fn ls(daemon: &Arc<Daemon>, filter: List) -> Reply {
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| Response::Sessions(session_view::listed(turn, &context, &filter));
    daemon.engine.turn(read).await
}
