//! tmux as observed by the watcher; the subject of [`crate::diff`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, ProcId, ServerId, Tag, TmuxSessionId, WindowId};
use crate::text::OsBytes;

/// The observed state of one tmux server at one time, made from listings that were proved complete, of the
/// whole server or a part of it. With [`Server::Absent`] it is empty. With [`Server::Unknown`] it contains at
/// most earlier observations, which say nothing about the present. The watcher's own session
/// ([`HIDDEN_SESSION`]) is never part of it; a pane of a pool that somebody has moved there is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TmuxState {
    /// The answer of the server.
    pub server: Server,
    /// Sessions by tmux's session id.
    pub sessions: BTreeMap<TmuxSessionId, TmuxSession>,
    /// Panes by pane id. A pane shared by grouped sessions occurs once.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

/// The name of the session without a process through which a watcher listens on the pool's own server. No
/// session of a pool can have this name, and it is created on no other server.
pub const HIDDEN_SESSION: &str = "_pool";

/// The answer of a server: present, absent or unknown. `Unknown` never removes anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// Nothing is known.
    Unknown(NoAnswer),
    /// Nothing listens at the socket. That alone does not prove that an earlier server is dead.
    #[default]
    Absent,
    /// This server answered with a complete listing.
    Up(ServerId),
}

/// The reason why nothing is known about a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoAnswer {
    /// The problem, as far as it was diagnosed.
    pub trouble: ServerProblem,
    /// The server that was seen before, if its process still lives.
    pub server: Option<ServerId>,
    /// The attempts and their results, for people.
    pub detail: String,
    /// The process that was diagnosed, if one was found.
    pub pid: Option<u32>,
}

crate::names! {
    /// The problem of a server that does not answer. Each has a different remedy.
    pub enum ServerProblem {
        /// The server was not examined yet, or the cause was not found.
        Unknown = "unknown",
        /// The process is stopped (SIGSTOP, or a debugger).
        Stopped = "stopped",
        /// The process uses a whole CPU and answers nothing.
        Spinning = "spinning",
        /// The process lives, but the file of its socket is gone, or another one is in its place.
        Unreachable = "unreachable",
        /// The process has no file descriptors left.
        Full = "full",
        /// This user may not open the socket.
        Forbidden = "forbidden",
        /// The tmux program is missing or does not run.
        NoTmux = "no_tmux",
    }
}

impl TmuxState {
    /// Returns the pane that bears the tag of an incarnation.
    pub fn tagged_pane(&self, tag: Tag) -> Option<(PaneId, &TmuxPane)> {
        self.panes.iter().find(|(_, pane)| pane.tag == Some(tag)).map(|(id, pane)| (*id, pane))
    }
}

impl Server {
    /// Creates an answer without a diagnosed problem.
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self::Unknown(NoAnswer {
            trouble: ServerProblem::Unknown,
            server: None,
            detail: detail.into(),
            pid: None,
        })
    }
}

crate::names! {
    /// The transport through which a watcher learns of changes.
    pub enum TmuxTransport {
        /// A connection in tmux's own socket protocol; changes are noticed at once.
        Native = "native",
        /// A `tmux -C` client; changes are noticed at once.
        Control = "control",
        /// Periodic complete listings.
        Listings = "listings",
    } else "it is native, control or listings"
}

/// A tmux session as observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmuxSession {
    /// The name as tmux shows it. Arbitrary text unless the pool created the session.
    pub name: String,
    /// `#{session_created}`: seconds since the Unix epoch.
    pub created_at: u64,
    /// Number of clients that are attached to it, or show one of its windows in another session.
    pub attached: u32,
    /// True if a pane of it is or was a session of a pool (`@pool_session`). It is not adopted automatically.
    #[serde(default)]
    pub pooled: bool,
    /// The incarnation for which a pool made or adopted it.
    #[serde(default)]
    pub made_for: Option<Tag>,
    /// True if it has another name than the pool gave it, or than it had when it was adopted.
    #[serde(default)]
    pub renamed: bool,
}

impl TmuxSession {
    /// Creates a session of a user's, to which nobody is attached.
    pub fn bare(name: impl Into<String>, created_at: u64) -> Self {
        Self { name: name.into(), created_at, attached: 0, pooled: false, made_for: None, renamed: false }
    }
}

/// A pane as observed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TmuxPane {
    /// The lowest tmux session id among those that show it.
    pub session: TmuxSessionId,
    /// The window.
    pub window: WindowId,
    /// The incarnation that it belongs to, from the pane option `@pool_id`.
    pub tag: Option<Tag>,
    /// `#{pane_pid}` with its start time, read by the watcher while the process lived; absent if it had
    /// already ended.
    pub process: Option<ProcId>,
    /// `#{pane_pid}`.
    pub pid: u32,
    /// `#{pane_dead}`: the terminal was closed. The process may still live.
    pub dead: bool,
    /// True if the watcher saw the process end. tmux may not know yet.
    pub exited: bool,
    /// Exit code, from the kernel or from `#{pane_dead_status}`, whichever came first.
    pub exit_status: Option<i32>,
    /// Signal that ended the process, from the kernel or from `#{pane_dead_signal}`.
    pub exit_signal: Option<i32>,
    /// True if the pane is in copy mode or another mode that swallows keys.
    pub in_mode: bool,
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// The foreground program of the terminal, from the process table, not from tmux.
    pub current_command: Option<OsBytes>,
    /// Working directory of that program, from the process table, not from tmux.
    pub current_dir: Option<OsBytes>,
    /// True if the pool gave the pane back to tmux (`@pool_id` is `detached`). It is not adopted again
    /// automatically.
    pub detached: bool,
}

impl TmuxPane {
    /// Creates an open pane of 80 columns and 24 rows without further properties.
    pub fn bare(session: TmuxSessionId, window: WindowId, pid: u32) -> Self {
        Self { session, window, pid, width: 80, height: 24, ..Self::default() }
    }

    /// True if its program has ended or its terminal was closed.
    pub fn is_over(&self) -> bool {
        self.dead || self.exited
    }

    /// True if the exit code or signal of its program is known.
    pub fn has_exit_status(&self) -> bool {
        self.exit_status.is_some() || self.exit_signal.is_some()
    }
}
