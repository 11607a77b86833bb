//! Observations made up for tests.

use process::identity::{Process, State};
use protocol::tmux::{TmuxPane, TmuxSession};
use protocol::{PaneId, ProcId, TmuxSessionId, WindowId};

pub(crate) fn session(n: u32, name: &str) -> (TmuxSessionId, TmuxSession) {
    (TmuxSessionId(n), TmuxSession { name: name.to_owned(), created_at: 7, attached: 0 })
}

pub(crate) fn pane(n: u32, pid: u32) -> (PaneId, TmuxPane) {
    let pane = TmuxPane {
        session: TmuxSessionId(1),
        window: WindowId(n),
        tag: None,
        process: None,
        pid,
        dead: false,
        exited: false,
        exit_status: None,
        exit_signal: None,
        in_mode: false,
        width: 80,
        height: 24,
        current_command: None,
        current_dir: None,
        detached: false,
    };
    (PaneId(n), pane)
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
