//! `inbox`: everything that waits for a person.

use std::sync::Arc;

use protocol::{Reply, Response};

use crate::engine::daemon::Daemon;
use crate::verb::attention;

pub(super) async fn inbox(daemon: &Arc<Daemon>) -> Reply {
    daemon.engine.turn(|turn| Ok(Response::Inbox(attention::items(turn)))).await?
}
