//! tmux as observed: what the watcher sees, and what diffs are made of. See [`crate::diff`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, ProcId, ServerId, Tag, TmuxSessionId, WindowId};
use crate::text::OsBytes;

/// Everything known about one tmux server at one time: made from listings that were proved complete,
/// of the whole server or of a part of it. With [`Server::Absent`] there is nothing in it; with
/// [`Server::Unknown`] at most what was seen before, which then says nothing of now. The session through
/// which a watcher listens ([`HIDDEN_SESSION`]) is never in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TmuxState {
    /// Which server answered, if one did.
    pub server: Server,
    /// By tmux's session id.
    pub sessions: BTreeMap<TmuxSessionId, TmuxSession>,
    /// By pane id. A pane that several grouped sessions share is here once.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

/// The name of the session, without a process, through which a watcher listens on the pool's own
/// server. No session of a pool can have it, nor is it made on any other server.
pub const HIDDEN_SESSION: &str = "_pool";

/// The three answers about a server: present, absent, unknown. Unknown never removes anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// Nothing was learnt.
    Unknown(Silence),
    /// Nothing listens at the socket. This alone does not prove that an earlier server is dead.
    #[default]
    Absent,
    /// This server answered, with a complete listing.
    Up(ServerId),
}

/// Why nothing was learnt of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// What is the matter, as far as that was found out.
    pub trouble: Trouble,
    /// The server that is meant, where one was seen before and its process still lives.
    pub server: Option<ServerId>,
    /// What was tried and what came of it, for people.
    pub detail: String,
}

/// What is the matter with a server that does not answer. Each has another cure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// It was not looked at yet, or the cause was not found out.
    Unknown,
    /// Its process is stopped (SIGSTOP, or a debugger).
    Stopped,
    /// It uses the processor all the time and answers nothing.
    Spinning,
    /// It lives, and its socket's file is gone.
    Unreachable,
    /// It has no file descriptors left.
    Full,
    /// The socket may not be opened by this user.
    Forbidden,
    /// tmux itself is missing or does not run.
    NoTmux,
}

impl Trouble {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Stopped => "stopped",
            Self::Spinning => "spinning",
            Self::Unreachable => "unreachable",
            Self::Full => "full",
            Self::Forbidden => "forbidden",
            Self::NoTmux => "no_tmux",
        }
    }
}

impl Server {
    /// Nothing was learnt, for a reason that is known only as text.
    #[must_use]
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self::Unknown(Silence { trouble: Trouble::Unknown, server: None, detail: detail.into() })
    }
}

/// How a watcher learns of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// Over a connection of its own in tmux's socket protocol: at once.
    Native,
    /// Over a `tmux -C` client: at once.
    Control,
    /// By whole listings, now and then.
    Listings,
}

impl Means {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Control => "control",
            Self::Listings => "listings",
        }
    }
}

impl std::str::FromStr for Means {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let all = [Self::Native, Self::Control, Self::Listings];
        all.into_iter().find(|means| means.word() == word).ok_or("it is native, control or listings")
    }
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
    /// The process was seen to end, by the watcher itself; tmux may not know of it yet.
    pub exited: bool,
    /// The exit status, from the kernel or from `#{pane_dead_status}`, whichever knew it first.
    pub exit_status: Option<i32>,
    /// The signal that ended it, likewise (`#{pane_dead_signal}`).
    pub exit_signal: Option<i32>,
    /// Whether the pane is in copy mode or another mode that swallows keys.
    pub in_mode: bool,
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// Name of the terminal's foreground program, from the process table, not from tmux.
    pub current_command: Option<OsBytes>,
    /// Working directory of that program, from the process table, not from tmux.
    pub current_dir: Option<OsBytes>,
    /// The pool gave it back to tmux (its `@pool_id` says `detached`): it is not adopted by itself again.
    pub detached: bool,
}

impl TmuxPane {
    /// An open pane of 80 columns and 24 rows of which nothing else is known.
    #[must_use]
    pub fn bare(session: TmuxSessionId, window: WindowId, pid: u32) -> Self {
        Self {
            session,
            window,
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
        }
    }

    /// Whether its program has ended, or has no terminal any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.dead || self.exited
    }

    /// Whether it is known how its program ended.
    #[must_use]
    pub fn has_known_end(&self) -> bool {
        self.exit_status.is_some() || self.exit_signal.is_some()
    }
}
