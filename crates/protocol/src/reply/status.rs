//! The answer to `status`.

use serde::{Deserialize, Serialize};

use super::queue::{BreakerView, QueueCounts};
use crate::activity::AskKind;
use crate::ids::{Epoch, ProcId, Seq, ServerId, SessionId};
use crate::standstill::StuckLane;
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;
use crate::tmux::TmuxTransport;

/// The answer to `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The pool's name.
    pub pool: String,
    /// The daemon's name and version.
    pub build: String,
    /// The daemon's process.
    pub process: ProcId,
    /// The epoch of the daemon's start.
    pub epoch: Epoch,
    /// The last committed event.
    pub seq: Seq,
    /// The time of the daemon's start.
    pub started_at: Timestamp,
    /// The other components.
    pub components: Vec<Component>,
    /// The tmux server.
    pub tmux: TmuxStatus,
    /// Numbers of sessions by lifecycle state.
    pub sessions: Vec<(String, u64)>,
    /// Slots in use.
    pub slots_used: u64,
    /// Slots in total.
    pub slots_max: u64,
    /// Counts over all queues.
    pub queue: QueueCounts,
    /// tmux sessions on the socket that are outside of the pool. The pool never touches them.
    pub foreign: Vec<String>,
    /// Size of the database file, in bytes.
    pub database_bytes: u64,
    /// Number of unreadable records in quarantine.
    pub quarantined: u64,
    /// Free space of the database's file system, in bytes, if the system tells.
    pub free_bytes: Option<u64>,
    /// Kinds of messages held back by circuit breakers.
    pub breakers: Vec<BreakerView>,
    /// Number of connected generators.
    pub generators: u64,
    /// The state directory.
    pub state_dir: OsBytes,
    /// Problems, each a sentence with what to do. The pool is healthy if there are none.
    pub problems: Vec<String>,
    /// Capacity for sessions, and the limits that can be enforced.
    pub room: Capacity,
    /// Sessions that wait for a person, the longest wait first. They are no problems.
    pub asking: Vec<PendingAsk>,
    /// Number of items in the inbox: everything that waits for a person.
    pub inbox: u64,
    /// Lanes of messages that have stood still for too long. Each is a problem, too.
    pub stuck: Vec<StuckLane>,
}

/// A component of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// The name: `tmux-watch` or `reaper`.
    pub name: String,
    /// True if it is connected.
    pub connected: bool,
    /// The version, while connected.
    pub build: Option<String>,
    /// The pid, if the system tells.
    pub pid: Option<u32>,
    /// The time of its last connection or disconnection.
    pub since: Timestamp,
}

/// The tmux server, as last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmuxStatus {
    /// The socket.
    pub socket: OsBytes,
    /// The state: `up`, `replaced` (another one answers while the one of some sessions lives), `absent`, or
    /// its problem: `stopped`, `spinning`, `unreachable`, `full`, `forbidden`, `no_tmux`, `unknown`.
    pub state: String,
    /// The reason for the state, and what to do.
    pub detail: Option<String>,
    /// The transport of the connected watcher.
    pub means: Option<TmuxTransport>,
    /// Number of the server's open files and its limit, if the system tells.
    pub open_files: Option<(u64, u64)>,
    /// The server.
    pub server: Option<ServerId>,
    /// The time at which it was last seen.
    pub seen_at: Option<Timestamp>,
}

/// Capacity for sessions, and the limits that can be enforced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capacity {
    /// Number of sessions and requests that wait for a slot.
    pub waiting: u64,
    /// Available memory, in bytes, if the system tells.
    pub memory: Option<u64>,
    /// Number of pseudo-terminals in use and their limit, if the system tells.
    pub terminals: Option<(u64, u64)>,
    /// The control group below which each incarnation gets its own.
    pub cgroup: Option<OsBytes>,
    /// The usable controllers: `memory`, `pids`, `cpu`.
    pub controllers: Vec<String>,
    /// The reason why memory, tasks or CPU share cannot be limited by control groups.
    pub without: Option<String>,
    /// Shortages of the machine by the rules `host_memory` and `host_disk`, with the figures.
    pub short_of: Vec<String>,
}

/// A session that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingAsk {
    /// The session.
    pub session: SessionId,
    /// The session's name.
    pub name: Name,
    /// The kind of question, if known.
    pub kind: Option<AskKind>,
    /// True if `approve` can answer it.
    pub answerable: bool,
    /// The time since which it waits.
    pub since: Timestamp,
}
