//! `terminal`: the state of a session's terminal, for a viewer to begin with.

use std::sync::Arc;

use protocol::reply::Terminal;
use protocol::{OsBytes, Refusal, Reply, Response, SessionRef};
use tmux::Answer;

use crate::engine::{Daemon, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::verb::{pane, session_view};

/// Also answers for a program that has ended, until its pane is gone.
pub(super) async fn terminal(daemon: &Arc<Daemon>, asked: SessionRef) -> Reply {
    let session = session_view::resolve(daemon, asked).await?;
    let pane = session.running().and_then(pane_of);
    let pane = pane.ok_or_else(|| pool::session::not_running(&session))?;
    let dir = daemon.paths.logs_of(session.id);
    // Read before the screen, so that the log after this offset continues from the screen without a gap.
    let bounds =
        daemon.blocking.with_timeout(Purpose::Logs, move || logs::bounds(&dir)).await.and_then(Result::ok);
    let (_, offset) = bounds.ok_or_else(|| Refusal::failed("its log cannot be read"))?;
    let glance = match daemon.tmux.snapshot(pane).await {
        Ok(glance) if glance.answer == Answer::Done => glance,
        other => return Err(pane::unseen(other.map(|glance| glance.answer))),
    };
    let size = protocol::session::Size { cols: glance.size.width, rows: glance.size.height };
    Ok(Response::Terminal(Box::new(Terminal {
        size,
        screen: OsBytes(glance.screen),
        cursor: glance.cursor,
        cursor_shown: glance.cursor_shown,
        alternate: glance.alternate,
        title: glance.title,
        offset,
    })))
}
