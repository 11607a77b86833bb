//! What schema 4 had, as it was encoded: by places, not by names.

use protocol::activity::{Activity, Notes};
use protocol::life::Usage;
use protocol::reply::{LockView, QueueCounts, TreeProcess};
use protocol::{OsBytes, Session};
use serde::Deserialize;

/// Encoded by their numbers: the ones of interest are the fifth and the sixth.
#[derive(Deserialize)]
pub(super) enum Response {
    N0,
    N1,
    N2,
    N3,
    Session(Box<SessionView>),
    Sessions(Vec<SessionView>),
}

#[derive(Deserialize)]
pub(super) struct SessionView {
    session: Session,
    queue: QueueCounts,
    tmux_socket: OsBytes,
    lock: Option<LockView>,
    current_dir: Option<OsBytes>,
    processes: Vec<TreeProcess>,
    usage: Option<Usage>,
    parkable: bool,
    slot_wait: Option<u64>,
}

impl From<SessionView> for protocol::reply::SessionView {
    fn from(old: SessionView) -> Self {
        Self {
            session: old.session,
            queue: old.queue,
            tmux_socket: old.tmux_socket,
            lock: old.lock,
            current_dir: old.current_dir,
            processes: old.processes,
            usage: old.usage,
            parkable: old.parkable,
            slot_wait: old.slot_wait,
            activity: Activity::default(),
            notes: Notes::default(),
            thought: None,
            waits: None,
            confirm: String::new(),
            theme: None,
        }
    }
}
