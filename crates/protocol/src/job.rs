//! The files through which `poold` and a session's init (`reaper exec`) communicate, in the pool's `run`
//! directory, and the one fixed frame that an init sends. An init of an old pane talks to a newer daemon, so
//! these formats outlive releases: they are versioned JSON, are readable for ever and only gain fields.
//!
//! | file | writer → reader | meaning |
//! |---|---|---|
//! | `TAG.job` | poold → init | what to run ([`Job`]); 0600, not fsynced. The init *claims* it by renaming it |
//! | `TAG.taken` | init → poold | the claim: the job, replaced by the init's [`ProcId`] once it was read |
//! | `TAG.started` | init → poold | the program runs ([`Started`]) |
//! | `TAG.exit` | init → poold | its end ([`ExitRecord`]); written under a temporary name, fsynced, renamed |
//!
//! The process that removes `TAG.job` first wins. If `poold` unlinks it, the program never starts: an init
//! that finds no job exits at once with code 125. The daemon keeps the claim until it removes all files of
//! the incarnation, so it never takes a claimed job for an unclaimed one.

use serde::{Deserialize, Serialize};

use crate::ids::{ProcId, SessionId, Tag};
use crate::limits::Limits;
use crate::reap::Leftovers;
use crate::text::OsBytes;
use crate::time::Timestamp;

/// The version number in each of these files.
pub const JOB_VERSION: u32 = 1;

/// Extensions of all files of an incarnation in the run directory: the job, its claim by an init, and the records of
/// the start and the end, also while the init writes them.
pub const RUN_FILES: [&str; 6] = ["job", "taken", "started", "started.tmp", "exit", "exit.tmp"];

/// The first bytes of a nudge frame.
const NUDGE_MAGIC: [u8; 8] = *b"PoolNudg";
/// Length of a nudge frame's payload, in bytes: the magic and the 16 bytes of the tag.
pub const NUDGE_LEN: usize = 24;

/// The job of an init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// [`JOB_VERSION`].
    pub version: u32,
    /// The session.
    pub session: SessionId,
    /// The incarnation.
    pub tag: Tag,
    /// The program and its arguments; at least one. A program without `/` is looked up in the `PATH` of
    /// [`Job::env`].
    pub argv: Vec<OsBytes>,
    /// The working directory of the program.
    pub cwd: OsBytes,
    /// The whole environment of the program. `TMUX` and `TMUX_PANE` are added from the init's own environment
    /// if [`Job::see_tmux`] is set, and `TERM` from tmux if it is missing here.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// True if the program's environment tells the tmux that it runs in.
    pub see_tmux: bool,
    /// The socket of `poold`, for the nudge.
    pub socket: OsBytes,
    /// The time between TERM and KILL for processes that remain after the program's end, in milliseconds.
    pub grace_ms: u64,
    /// The umask of the program: that with which the daemon was started, not the daemon's own.
    pub umask: u32,
    /// Limits of the program and its descendants.
    #[serde(default)]
    pub limits: Limits,
    /// The control group that the program enters before exec; the init stays outside.
    #[serde(default)]
    pub cgroup: Option<OsBytes>,
    /// The treatment of daemons that the program detached.
    #[serde(default)]
    pub leftovers: Leftovers,
    /// The session's private directory. A socket in it serves nobody else.
    #[serde(default)]
    pub private: Option<OsBytes>,
    /// The log of the program's standard error; none if that is the terminal.
    #[serde(default)]
    pub stderr: Option<StderrLog>,
}

/// A log that an init writes, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StderrLog {
    /// Its directory; see [`crate::logs`].
    pub dir: OsBytes,
    /// Maximum size of its files together, in bytes.
    pub max_size: u64,
    /// Number of earlier parts.
    pub keep: u32,
    /// True if earlier parts are compressed.
    pub compress: bool,
}

/// The report that the program runs: its exec succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// [`JOB_VERSION`].
    pub version: u32,
    /// The init process.
    pub init: ProcId,
    /// The process of the program.
    pub agent: ProcId,
    /// The time of the exec.
    pub at: Timestamp,
    /// Limits that could not be enforced, each with the reason, as sentences.
    #[serde(default)]
    pub unenforced: Vec<String>,
}

/// The report of the program's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// [`JOB_VERSION`].
    pub version: u32,
    /// Exit code 0 to 255, if the program exited. 127 or 126 together with `exec_error` means that it never
    /// ran.
    pub code: Option<i32>,
    /// Signal number, if a signal ended the program.
    pub signal: Option<i32>,
    /// The reason why the program could not be executed.
    pub exec_error: Option<String>,
    /// The time of the end.
    pub at: Timestamp,
    /// User CPU time of the program and of the children it waited for, in microseconds.
    pub user_us: u64,
    /// System CPU time of the same processes, in microseconds.
    pub system_us: u64,
    /// Largest resident set, in KiB.
    pub max_rss_kib: u64,
    /// Number of processes in its control group that were killed for lack of memory.
    #[serde(default)]
    pub oom_kills: Option<u64>,
}

/// Encodes a nudge: the request to look at the files of this incarnation. It is sent instead of a hello and
/// not answered.
pub fn nudge(tag: Tag) -> [u8; NUDGE_LEN] {
    let mut payload = [0; NUDGE_LEN];
    payload[..8].copy_from_slice(&NUDGE_MAGIC);
    payload[8..].copy_from_slice(&tag.0);
    payload
}

/// Returns the tag of a nudge, or `None` if the payload is something else.
pub fn parse_nudge(payload: &[u8]) -> Option<Tag> {
    let tag = payload.strip_prefix(&NUDGE_MAGIC)?;
    tag.try_into().ok().map(Tag)
}
