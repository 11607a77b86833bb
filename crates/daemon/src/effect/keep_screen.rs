//! The last screen of a session, kept so that it can be seen when the session is over.

use std::sync::Arc;

use protocol::{SessionId, Tag};
use tmux::Answer;
use tmux::act::Lines;

use crate::engine::context::{Daemon, pane_of};
use crate::host::blocking::Purpose;
use crate::host::{blocking, files};

/// Whether a pane is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pane {
    Here,
    Gone,
    Unknown,
}

/// What a session showed last can still be seen when it is over. Answers whether its pane is left.
pub(crate) async fn keep_screen(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> Pane {
    let run = daemon.incarnation(session).await.filter(|run| run.tag == tag);
    let Some(pane) = run.as_ref().and_then(pane_of) else { return Pane::Unknown };
    match daemon.tmux.capture(pane, Lines::Visible, false).await {
        Ok((Answer::Done, screen)) => {
            let path = daemon.paths.meta_of(session).join(files::SCREEN);
            match blocking::limited(Purpose::Launch, move || files::replace(&path, &screen)).await {
                Some(Ok(())) => {}
                other => tracing::warn!(%session, ?other, "its last screen was not kept"),
            }
            Pane::Here
        }
        Ok((Answer::Gone, _)) => Pane::Gone,
        other => {
            tracing::debug!(%session, ?other, "its last screen is not to be had");
            Pane::Unknown
        }
    }
}
