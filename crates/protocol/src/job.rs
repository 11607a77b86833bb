//! The files that `poold` and a session's init (`reaper exec`) exchange, in the pool's `run`
//! directory, and the one fixed frame that an init sends. These outlive releases: an init of an
//! old pane talks to a newer daemon, so versioned JSON, read for ever; fields only grow.
//!
//! | file | writer → reader | meaning |
//! |---|---|---|
//! | `TAG.job` | poold → init | what to run ([`Job`]); 0600, fsynced. The init *claims* it by renaming it |
//! | `TAG.taken` | init → poold | the claim: the job, replaced by the init's [`ProcId`] once it was read |
//! | `TAG.started` | init → poold | the program runs ([`Started`]) |
//! | `TAG.exit` | init → poold | how it ended ([`ExitRecord`]); written to a temporary name, fsynced, renamed |
//!
//! Whoever moves `TAG.job` away first wins: `poold` that unlinks it knows that the program never
//! starts; an init that finds none exits at once with code 125. The claim stays until the daemon
//! removes it with the rest, so that a claimed job is never taken for one that nobody has.

use serde::{Deserialize, Serialize};

use crate::ids::{ProcId, SessionId, Tag};
use crate::life::{Leftovers, Limits};
use crate::text::OsBytes;
use crate::time::Timestamp;

/// Version written into each of these files.
pub const JOB_VERSION: u32 = 1;

/// First bytes of a nudge frame.
pub const NUDGE_MAGIC: [u8; 8] = *b"PoolNudg";
/// Length of a nudge frame's payload: the magic and the 16 bytes of the tag.
pub const NUDGE_LEN: usize = 24;

/// What an init runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// [`JOB_VERSION`].
    pub version: u32,
    /// The session.
    pub session: SessionId,
    /// The incarnation.
    pub tag: Tag,
    /// The program and its arguments; at least one. A program without `/` is looked up in the
    /// `PATH` of [`Job::env`].
    pub argv: Vec<OsBytes>,
    /// Directory to start in.
    pub cwd: OsBytes,
    /// The whole environment of the program, except that `TMUX` and `TMUX_PANE` are added from the
    /// init's own where [`Job::see_tmux`] is set, and `TERM` from tmux where it is not here.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// Whether the program may see which tmux it runs in.
    pub see_tmux: bool,
    /// The socket of `poold`, to nudge.
    pub socket: OsBytes,
    /// How long what is left of the tree has between TERM and KILL after the program's end, in milliseconds.
    pub grace_ms: u64,
    /// The program's file mode creation mask: that with which the daemon was started, not its own.
    pub umask: u32,
    /// What bounds the program and all that it starts.
    #[serde(default)]
    pub limits: Limits,
    /// The control group that the program enters before it runs; the init stays outside.
    #[serde(default)]
    pub cgroup: Option<OsBytes>,
    /// What becomes of what it detached.
    #[serde(default)]
    pub leftovers: Leftovers,
    /// The session's private directory: what listens in there serves nobody else.
    #[serde(default)]
    pub private: Option<OsBytes>,
}

/// That the program runs: its exec succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// [`JOB_VERSION`].
    pub version: u32,
    /// The init.
    pub init: ProcId,
    /// The program.
    pub agent: ProcId,
    /// When.
    pub at: Timestamp,
    /// Limits that do not hold, and why, each a sentence.
    #[serde(default)]
    pub unenforced: Vec<String>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// [`JOB_VERSION`].
    pub version: u32,
    /// Exit code 0 to 255, where it exited. 127 or 126 together with `exec_error`: it never ran.
    pub code: Option<i32>,
    /// The signal's number, where one ended it.
    pub signal: Option<i32>,
    /// Why the program could not be started.
    pub exec_error: Option<String>,
    /// When.
    pub at: Timestamp,
    /// User CPU time of the program and the children it waited for, in microseconds.
    pub user_us: u64,
    /// System CPU time, likewise.
    pub system_us: u64,
    /// Largest resident set, in KiB.
    pub max_rss_kib: u64,
    /// Processes of its control group that were ended for want of memory.
    #[serde(default)]
    pub oom_kills: Option<u64>,
}

/// The payload of a nudge: "look at the files of this incarnation". Sent instead of a hello; not answered.
#[must_use]
pub fn nudge(tag: Tag) -> [u8; NUDGE_LEN] {
    let mut payload = [0; NUDGE_LEN];
    payload[..8].copy_from_slice(&NUDGE_MAGIC);
    payload[8..].copy_from_slice(&tag.0);
    payload
}

/// The tag of a nudge, or `None` where the payload is something else.
#[must_use]
pub fn parse_nudge(payload: &[u8]) -> Option<Tag> {
    let tag = payload.strip_prefix(&NUDGE_MAGIC)?;
    tag.try_into().ok().map(Tag)
}
