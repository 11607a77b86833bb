//! Reports split into frames are whole again after joining.

use protocol::OsBytes;
use protocol::diff::diff;
use protocol::frame;
use protocol::tmux::Server;

use crate::testing::{pane, session};
use protocol::request::View;
use protocol::tmux::{TmuxPane, TmuxState};
use protocol::view_parts::{diffs, join, snapshot};

fn state(sessions: u32, panes: u32, name: usize, dir: usize) -> TmuxState {
    let in_dir = |(id, pane)| (id, TmuxPane { current_dir: Some(OsBytes(vec![b'd'; dir])), ..pane });
    TmuxState {
        server: Server::unknown("a server for the test"),
        sessions: (0..sessions).map(|n| session(n, &"x".repeat(name))).collect(),
        panes: (0..panes).map(|n| in_dir(pane(n, n + 2))).collect(),
    }
}

fn joined(views: &[View]) -> TmuxState {
    let mut whole = None;
    for (at, view) in views.iter().enumerate() {
        let View::Snapshot { state, part, more } = view else { panic!("not a snapshot") };
        assert_eq!((*part as usize, *more), (at, at + 1 < views.len()));
        whole = Some(join(whole, state.clone()));
    }
    whole.unwrap()
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
