//! Cuts a snapshot to the size of frames.

use crate::request::View;
use crate::tmux::TmuxState;

/// Sessions in one part. A foreign session's name is free text, as long as a command of tmux may
/// be: 16 KiB. So many fit a frame.
const SESSIONS: usize = 40;
/// Panes in one part. A path is 4 KiB at most, the rest of a pane about 100 bytes.
const PANES: usize = 80;
/// More changes than this are told by a snapshot: it is not longer, and fits for sure.
pub const CHANGES: usize = SESSIONS;

/// The snapshot as one view or several, all but the last marked as having a successor.
#[must_use]
pub fn snapshot(state: TmuxState) -> Vec<View> {
    let TmuxState { server, sessions, panes } = state;
    let count = sessions.len().div_ceil(SESSIONS).max(panes.len().div_ceil(PANES)).max(1);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let (mut sessions, mut panes) = (sessions.into_iter(), panes.into_iter());
    let part = |n: u32| View::Snapshot {
        state: TmuxState {
            server: server.clone(),
            sessions: sessions.by_ref().take(SESSIONS).collect(),
            panes: panes.by_ref().take(PANES).collect(),
        },
        part: n,
        more: n + 1 < count,
    };
    (0..count).map(part).collect()
}

/// Joins a part to those before it.
#[must_use]
pub fn join(before: Option<TmuxState>, part: TmuxState) -> TmuxState {
    let Some(mut whole) = before else { return part };
    whole.server = part.server;
    whole.sessions.extend(part.sessions);
    whole.panes.extend(part.panes);
    whole
}
