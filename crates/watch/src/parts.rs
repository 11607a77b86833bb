//! Cuts what is told to the size of frames.

use protocol::diff::Change;
use protocol::request::View;
use protocol::tmux::{TmuxPane, TmuxSession, TmuxState};

/// So many bytes of one frame are used, about: half of what one may have. A single session's name may
/// take 16 KiB, a pane's directory 4 KiB.
const BUDGET: usize = 512 << 10;
/// The most that anything takes besides its texts.
const REST: usize = 128;

/// The snapshot as one view or several, all but the last marked as having a successor.
pub(crate) fn snapshot(state: TmuxState) -> Vec<View> {
    let empty = || TmuxState { server: state.server.clone(), ..TmuxState::default() };
    let (mut parts, mut used) = (vec![empty()], 0);
    let mut part = |size: usize| {
        used += size;
        if used > BUDGET {
            used = size;
            parts.push(empty());
        }
        parts.len() - 1
    };
    let sessions: Vec<_> = state.sessions.into_iter().map(|(id, s)| (part(of_session(&s)), id, s)).collect();
    let panes: Vec<_> = state.panes.into_iter().map(|(id, pane)| (part(of_pane(&pane)), id, pane)).collect();
    sessions.into_iter().for_each(|(at, id, session)| drop(parts[at].sessions.insert(id, session)));
    panes.into_iter().for_each(|(at, id, pane)| drop(parts[at].panes.insert(id, pane)));
    let last = parts.len() - 1;
    let views = parts.into_iter().enumerate();
    views
        .map(|(at, state)| View::Snapshot {
            state,
            part: u32::try_from(at).unwrap_or(u32::MAX),
            more: at < last,
        })
        .collect()
}

/// The changes, as many in one piece as fit a frame.
pub(crate) fn diffs(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let (mut pieces, mut used): (Vec<Vec<Change>>, usize) = (Vec::new(), BUDGET);
    for change in changes {
        let size = match &change {
            Change::Session(_, session) => of_session(session),
            Change::Pane(_, pane) => of_pane(pane),
            Change::Server(_) => 1024,
            Change::SessionGone(_) | Change::PaneGone(_) => 8,
        };
        used += size;
        match pieces.last_mut().filter(|_| used <= BUDGET) {
            Some(piece) => piece.push(change),
            None => {
                used = size;
                pieces.push(vec![change]);
            }
        }
    }
    pieces
}

fn of_session(session: &TmuxSession) -> usize {
    REST + session.name.len()
}

fn of_pane(pane: &TmuxPane) -> usize {
    let text = |text: &Option<protocol::OsBytes>| text.as_ref().map_or(0, |text| text.0.len());
    REST + text(&pane.current_command) + text(&pane.current_dir)
}

#[cfg(test)]
mod tests {
    use protocol::OsBytes;
    use protocol::diff::diff;
    use protocol::frame;
    use protocol::tmux::Server;

    use super::*;
    use crate::testing::{pane, session};

    fn state(sessions: u32, panes: u32, name: usize, dir: usize) -> TmuxState {
        let in_dir = |(id, pane)| (id, TmuxPane { current_dir: Some(OsBytes(vec![b'd'; dir])), ..pane });
        TmuxState {
            server: Server::unknown("a server for the test"),
            sessions: (0..sessions).map(|n| session(n, &"x".repeat(name))).collect(),
            panes: (0..panes).map(|n| in_dir(pane(n, n + 2))).collect(),
        }
    }

    fn joined(views: &[View]) -> TmuxState {
        let mut whole = TmuxState::default();
        for (at, view) in views.iter().enumerate() {
            let View::Snapshot { state, part, more } = view else { panic!("not a snapshot") };
            assert_eq!((*part as usize, *more), (at, at + 1 < views.len()));
            whole.server = state.server.clone();
            whole.sessions.extend(state.sessions.clone());
            whole.panes.extend(state.panes.clone());
        }
        whole
    }

    #[test]
    fn the_parts_are_the_whole_and_fit() {
        for (sessions, panes, name, dir) in
            [(0, 0, 0, 0), (1000, 1000, 10, 60), (300, 0, 16 << 10, 0), (120, 700, 16 << 10, 4096)]
        {
            let state = state(sessions, panes, name, dir);
            let views = snapshot(state.clone());
            assert_eq!(joined(&views), state);
            assert!(views.iter().all(|view| frame::encode(view).is_ok()), "{sessions} {panes}");
            let changes = diff(&TmuxState::default(), &state);
            let pieces = diffs(changes.clone());
            assert!(pieces.iter().all(|piece| frame::encode(&View::Diff(piece.clone())).is_ok()));
            assert_eq!(pieces.concat(), changes);
        }
        assert_eq!(snapshot(state(1000, 1000, 10, 60)).len(), 1, "the usual pool is one frame");
    }

    #[test]
    fn nothing_is_no_piece() {
        assert!(diffs(Vec::new()).is_empty());
    }
}
