//! Fixtures for tests.

use process::identity::{Process, State};
use protocol::tmux::{TmuxPane, TmuxSession};
use protocol::{PaneId, ProcId, TmuxSessionId, WindowId};

pub(crate) fn session(n: u32, name: &str) -> (TmuxSessionId, TmuxSession) {
    (TmuxSessionId(n), TmuxSession::bare(name, 7))
}

pub(crate) fn pane(n: u32, pid: u32) -> (PaneId, TmuxPane) {
    (PaneId(n), TmuxPane::bare(TmuxSessionId(1), WindowId(n), pid))
}

pub(crate) fn child(pid: u32, ppid: u32, start: u64) -> Process {
    Process {
        id: ProcId { pid, start },
        ppid,
        pgid: pid,
        sid: pid,
        uid: 0,
        tpgid: None,
        state: State::Running,
        comm: protocol::OsBytes(b"sh".to_vec()),
    }
}
