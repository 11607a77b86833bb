//! `logs`: the location of a session's log files.

use std::sync::Arc;

use protocol::reply::LogFiles;
use protocol::{Reply, Response, SessionRef};

use crate::engine::Daemon;
use crate::verb::session_view;

pub(super) async fn logs(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = session_view::resolve(daemon, wanted).await?;
    Ok(Response::Logs(LogFiles { dir: daemon.paths.logs_of(session.id).into() }))
}
