//! Cuts a snapshot to the size of frames.

use protocol::request::View;
use protocol::tmux::TmuxState;

/// Sessions in one part. A foreign session's name is free text, as long as a command of tmux may
/// be: 16 KiB. So many fit a frame.
const SESSIONS: usize = 50;
/// Panes in one part, each about 100 bytes.
const PANES: usize = 200;
/// More changes than this are told by a snapshot: it is not longer, and fits for sure.
pub(crate) const CHANGES: usize = SESSIONS;

/// The snapshot as one view or several, all but the last marked as having a successor.
pub(crate) fn snapshot(state: TmuxState) -> Vec<View> {
    let TmuxState { server, sessions, panes } = state;
    let count = sessions.len().div_ceil(SESSIONS).max(panes.len().div_ceil(PANES)).max(1);
    let (mut sessions, mut panes) = (sessions.into_iter(), panes.into_iter());
    let part = |n| View::Snapshot {
        state: TmuxState {
            server: server.clone(),
            sessions: sessions.by_ref().take(SESSIONS).collect(),
            panes: panes.by_ref().take(PANES).collect(),
        },
        more: n + 1 < count,
    };
    (0..count).map(part).collect()
}

#[cfg(test)]
mod tests {
    use protocol::frame;
    use protocol::tmux::Server;

    use super::*;
    use crate::testing::{pane, session};

    fn joined(views: &[View]) -> TmuxState {
        let mut whole = TmuxState::default();
        for (at, view) in views.iter().enumerate() {
            let View::Snapshot { state, more } = view else { panic!("not a snapshot") };
            assert_eq!(*more, at + 1 < views.len());
            whole.server = state.server.clone();
            whole.sessions.extend(state.sessions.clone());
            whole.panes.extend(state.panes.clone());
        }
        whole
    }

    #[test]
    fn the_parts_are_the_whole() {
        for (sessions, panes, parts) in [(0, 0, 1), (50, 200, 1), (51, 0, 2), (3, 201, 2), (120, 1000, 5)] {
            let state = TmuxState {
                server: Server::Unknown("a server for the test".to_owned()),
                sessions: (0..sessions).map(|n| session(n, "name")).collect(),
                panes: (0..panes).map(|n| pane(n, n + 2)).collect(),
            };
            let views = snapshot(state.clone());
            assert_eq!(views.len(), parts, "{sessions} sessions, {panes} panes");
            assert_eq!(joined(&views), state);
        }
    }

    #[test]
    fn the_longest_names_fit() {
        let name = "x".repeat(16 << 10);
        let sessions = (0..120).map(|n| session(n, &name)).collect();
        let panes = (0..200).map(|n| pane(n, n + 2)).collect();
        let views = snapshot(TmuxState { sessions, panes, ..TmuxState::default() });
        assert!(views.iter().all(|view| frame::encode(view).is_ok()));
    }
}
