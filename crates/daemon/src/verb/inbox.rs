//! `inbox`: everything that waits for a person.

use std::sync::Arc;

use protocol::{Reply, Response};

use crate::engine::{Daemon, Turn};
use crate::verb::attention;

pub(super) async fn inbox(daemon: &Arc<Daemon>) -> Reply {
    let loaded = daemon.loaded();
    let list = move |turn: &mut Turn<'_>| attention::items(turn, &loaded.settings.queue);
    Ok(Response::Inbox(daemon.engine.turn(list).await?))
}
