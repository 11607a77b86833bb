//! tmux as observed: what the watcher sees, and what diffs are made of. See [`crate::diff`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, ProcId, ServerId, Tag, TmuxSessionId, WindowId};
use crate::text::OsBytes;

/// Everything known about one tmux server at one time. Only ever made from a listing that was
/// proved complete, or with [`Server::Absent`] or [`Server::Unknown`] and nothing in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TmuxState {
    /// Which server answered, if one did.
    pub server: Server,
    /// By tmux's session id.
    pub sessions: BTreeMap<TmuxSessionId, TmuxSession>,
    /// By pane id. A pane that several grouped sessions share is here once.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

/// The three answers about a server: present, absent, unknown. Unknown never removes anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// Nothing was learnt. The text says why (timed out, listing incomplete, …), for people.
    Unknown(String),
    /// Nothing listens at the socket. This alone does not prove that an earlier server is dead.
    #[default]
    Absent,
    /// This server answered, with a complete listing.
    Up(ServerId),
}

/// A tmux session as observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmuxSession {
    /// The name as tmux shows it; free text where the pool did not create it.
    pub name: String,
    /// `#{session_created}`: seconds since the Unix epoch.
    pub created_at: u64,
    /// How many clients are attached.
    pub attached: u32,
}

/// A pane as observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmuxPane {
    /// The lowest tmux session id that shows it.
    pub session: TmuxSessionId,
    /// Its window.
    pub window: WindowId,
    /// The pane option `@pool_id`: which incarnation of ours it is, if any.
    pub tag: Option<Tag>,
    /// `#{pane_pid}` with its start time, stamped by the watcher while the process lived; absent
    /// where it was gone already.
    pub process: Option<ProcId>,
    /// `#{pane_pid}`.
    pub pid: u32,
    /// `#{pane_dead}`: the terminal was closed. The process may still live.
    pub dead: bool,
    /// `#{pane_dead_status}`, where tmux knows it.
    pub exit_status: Option<i32>,
    /// `#{pane_dead_signal}`, where tmux knows it.
    pub exit_signal: Option<i32>,
    /// Whether the pane is in copy mode or another mode that swallows keys.
    pub in_mode: bool,
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// Name of the terminal's foreground program, from the process table, not from tmux.
    pub current_command: Option<OsBytes>,
}
