//! `terminal`, `input` and `resize`: for whoever shows a session's terminal to somebody else.

use std::sync::Arc;

use protocol::reply::Terminal;
use protocol::request::{INPUT_MAX, Input, Resize};
use protocol::{ErrorCode, OsBytes, Refusal, Reply, Response, SessionRef};
use tmux::Answer;

use crate::decide::idempotency::Op;
use crate::engine::context::{Daemon, pane_of, tmux_size};
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::verb::{keys, shown};

/// The terminal as it is, of a program that ended too, until its pane is gone.
pub(super) async fn terminal(daemon: &Arc<Daemon>, asked: SessionRef) -> Reply {
    let session = shown::find(daemon, asked).await?;
    let pane = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).and_then(pane_of);
    let over = || Refusal::new(ErrorCode::Refused, format!("{} does not run", session.name));
    let pane = pane.ok_or_else(over)?;
    let dir = daemon.paths.session(session.id).join("logs");
    // Before the screen: what comes after it cannot be missing there.
    let bounds = blocking::limited(Purpose::Logs, move || logs::bounds(&dir)).await.and_then(Result::ok);
    let (_, offset) = bounds.ok_or_else(|| Refusal::new(ErrorCode::Failed, "its log cannot be read"))?;
    let glance = match daemon.tmux.snapshot(pane).await {
        Ok(glance) if glance.answer == Answer::Done => glance,
        other => return keys::answered(other.map(|glance| glance.answer)),
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

pub(super) async fn input(daemon: &Arc<Daemon>, op: &Op, asked: Input) -> Reply {
    let Input { session, bytes: OsBytes(bytes) } = asked;
    if bytes.is_empty() || bytes.len() > INPUT_MAX {
        let why = format!("input has 1 to {INPUT_MAX} bytes");
        return Err(Refusal::new(ErrorCode::Usage, why));
    }
    let tmux = Arc::clone(&daemon.tmux);
    keys::on_pane(daemon, op, (session, "input"), async move |pane| tmux.input(pane, &bytes).await).await
}

/// Refused while somebody is attached, whose terminal decides.
pub(super) async fn resize(daemon: &Arc<Daemon>, op: &Op, asked: Resize) -> Reply {
    let Resize { session, size } = asked;
    if size.cols == 0 || size.rows == 0 {
        return Err(Refusal::new(ErrorCode::Usage, "a terminal has columns and rows"));
    }
    let tmux = Arc::clone(&daemon.tmux);
    let size = tmux_size(size);
    keys::on_pane(daemon, op, (session, "resize"), async move |pane| tmux.resize(pane, size).await).await
}
