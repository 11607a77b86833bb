//! Splits observations of tmux into pieces that fit frames, and joins them.

use crate::diff::Change;
use crate::request::View;
use crate::text::OsBytes;
use crate::tmux::{TmuxPane, TmuxSession, TmuxState};

/// Approximate number of bytes used of each frame: half of the maximum. A single session's name may take 16
/// KiB, a pane's directory 4 KiB.
const BUDGET: usize = 512 << 10;
/// Maximum size of an entry without its texts, in bytes.
const OVERHEAD: usize = 128;

/// Splits a snapshot into views. All but the last are marked as having a successor.
pub fn snapshot(state: TmuxState) -> Vec<View> {
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
    let sessions: Vec<_> =
        state.sessions.into_iter().map(|(id, s)| (part(session_size(&s)), id, s)).collect();
    let panes: Vec<_> =
        state.panes.into_iter().map(|(id, pane)| (part(pane_size(&pane)), id, pane)).collect();
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

/// Splits changes into pieces that fit a frame.
#[must_use]
pub fn diffs(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let (mut pieces, mut used): (Vec<Vec<Change>>, usize) = (Vec::new(), BUDGET);
    for change in changes {
        let size = match &change {
            Change::Session(_, session) => session_size(session),
            Change::Pane(_, pane) => pane_size(pane),
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

fn session_size(session: &TmuxSession) -> usize {
    OVERHEAD + session.name.len()
}

fn pane_size(pane: &TmuxPane) -> usize {
    let text = |text: &Option<OsBytes>| text.as_ref().map_or(0, |text| text.0.len());
    OVERHEAD + text(&pane.current_command) + text(&pane.current_dir)
}

/// Joins a part to the previous ones.
pub fn join(before: Option<TmuxState>, part: TmuxState) -> TmuxState {
    let Some(mut whole) = before else { return part };
    whole.server = part.server;
    whole.sessions.extend(part.sessions);
    whole.panes.extend(part.panes);
    whole
}
