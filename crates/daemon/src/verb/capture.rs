//! `capture`: the text of a session's screen.

use std::sync::Arc;

use protocol::request::{Capture, Extent};
use protocol::{OsBytes, Refusal, Reply, Response, Session};
use tmux::Answer;
use tmux::act::Lines;

use crate::engine::{Daemon, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::files;
use crate::verb::{pane, session_view};

/// Answers with the screen, or the last one that was kept of a session that does not run.
pub(super) async fn capture(daemon: &Arc<Daemon>, asked: Capture) -> Reply {
    let session = session_view::resolve(daemon, asked.session.clone()).await?;
    let pane = session.running().and_then(pane_of);
    let Some(pane) = pane else { return last_screen(daemon, &session).await };
    let lines = match asked.extent {
        Extent::Visible => Lines::Visible,
        Extent::Last(n) => Lines::Last(n),
        Extent::All => Lines::All,
    };
    match daemon.tmux.capture(pane, lines, asked.ansi).await {
        Ok((Answer::Done, screen)) => Ok(Response::Screen(OsBytes(screen))),
        Ok((Answer::Gone, _)) => last_screen(daemon, &session).await,
        other => Err(pane::unseen(other.map(|(answer, _)| answer))),
    }
}

async fn last_screen(daemon: &Daemon, session: &Session) -> Reply {
    let path = daemon.paths.meta_of(session.id).join(files::SCREEN);
    match daemon
        .blocking
        .with_timeout(Purpose::Launch, move || files::read_bounded(&path, files::SCREEN_MAX))
        .await
    {
        Some(Ok(screen)) => Ok(Response::Screen(OsBytes(screen))),
        _ => Err(Refusal::not_found(format!(
            "{} does not run, and no last screen of it was kept; `poolctl logs` has its output",
            session.name
        ))),
    }
}
