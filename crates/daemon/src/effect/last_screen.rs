//! The last screen of a session, saved so that it can be shown after the session's end.

use std::sync::Arc;

use protocol::{SessionId, Tag};
use tmux::Answer;
use tmux::act::Lines;

use crate::engine::{Daemon, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::files;

/// The presence of a pane in tmux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PanePresence {
    Present,
    Gone,
    Unknown,
}

/// Saves the visible screen of a session. Returns the presence of its pane.
pub(crate) async fn save_screen(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> PanePresence {
    let run = daemon.incarnation(session).await.filter(|run| run.tag == tag);
    let Some(pane) = run.as_ref().and_then(pane_of) else { return PanePresence::Unknown };
    match daemon.tmux.capture(pane, Lines::Visible, false).await {
        Ok((Answer::Done, screen)) => {
            let path = daemon.paths.meta_of(session).join(files::SCREEN);
            match daemon
                .blocking
                .with_timeout(Purpose::Launch, move || files::write_atomic(&path, &screen))
                .await
            {
                Some(Ok(())) => {}
                other => tracing::warn!(%session, ?other, "its last screen was not saved"),
            }
            PanePresence::Present
        }
        Ok((Answer::Gone, _)) => PanePresence::Gone,
        other => {
            tracing::debug!(%session, ?other, "its last screen cannot be captured");
            PanePresence::Unknown
        }
    }
}
