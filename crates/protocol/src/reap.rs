//! The exchange between `poold` and the reaper: candidates, leases and verdicts.

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, ProcId, ServerId, SessionId, Tag, Token};
use crate::text::{Name, OsBytes};

mod rule;

pub use rule::{Action, Rule};

/// Maximum number of sessions that are ended at the same time, by one command and by the reaper: each waits
/// most of the time for processes to exit. Above it, the graces of sessions add up.
pub const ENDED_AT_ONCE: usize = 64;

// 50 sessions have to end in the time of one.
const _: () = assert!(ENDED_AT_ONCE >= 50);

/// Something that `poold` wants to be ended. The reaper never chooses candidates itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The session.
    pub session: SessionId,
    /// The session's name, for people.
    pub name: Name,
    /// The kind of candidate.
    pub kind: CandidateKind,
    /// A sentence of evidence, for people.
    pub evidence: String,
    /// The incarnation to end.
    pub tag: Tag,
    /// The tmux server of its pane, if known.
    pub server: Option<ServerId>,
    /// The pane, if known.
    pub pane: Option<PaneId>,
    /// The init, if known.
    pub init: Option<ProcId>,
    /// The agent, if known.
    pub agent: Option<ProcId>,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
    /// True if the pane is removed too. A restart keeps it until the new one exists.
    pub remove_pane: bool,
    /// The control group, if it has one. Every process in the group belongs to it.
    pub cgroup: Option<OsBytes>,
    /// The rule that found it; absent if its end was requested or its program ended by itself.
    pub rule: Option<Rule>,
}

/// The kinds of candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateKind {
    /// A session whose incarnation is to be ended: killed, restarted, parked, evicted or drained, by a user,
    /// by a reap rule or by the scheduler.
    Requested,
    /// A pane whose program has ended.
    ZombiePane,
    /// A pane that carries the tag of an ended incarnation.
    RetiredTag,
    /// Processes of an incarnation whose pane or server is gone.
    Leftover,
    /// A worker that outlived its lease, or was silent for too long. The candidate's `init` is its process. Its tag is
    /// that of the claim ([`Tag::for_claim`]), or one of its own if it holds nothing.
    StaleWorker,
    /// Processes that carry the tag of an ended incarnation or claim.
    Orphan,
    /// A tmux client (the candidate's `init`) left by a `poold` that is dead.
    StaleClient,
}

/// The right to end a candidate: the session's lock, with the parameters to act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The fencing token.
    pub token: Token,
    /// The candidate, verified when the lease was granted.
    pub candidate: Candidate,
    /// The socket of tmux.
    pub tmux_socket: OsBytes,
    /// Pids that are never signalled: the tmux server, the daemons and their supervisor.
    pub protected: Vec<u32>,
    /// The tmux program.
    pub tmux: OsBytes,
    /// The socket of `poold`. It is part of the marker of a claim.
    pub socket: OsBytes,
    /// Time between the first KILL and giving up, in milliseconds.
    pub verify_ms: u64,
    /// The treatment of daemons that the program detached.
    pub leftovers: Leftovers,
    /// The directory of this pool's job files, which identify the pool's inits.
    pub run: OsBytes,
    /// The session's private directory. A socket in it serves nobody else.
    pub private: Option<OsBytes>,
    /// The command to run before the end; none if empty.
    pub before: Vec<OsBytes>,
    /// The command to run after the end; none if empty.
    pub after: Vec<OsBytes>,
}

/// The treatment of daemons that a session's program detached, at the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leftovers {
    /// Ends them, except those that serve others: a tmux server, another pool or an ssh-agent, recognised by
    /// a listening socket outside of the session's own directory. Those are reported.
    #[default]
    Kill,
    /// Reports them only.
    Report,
}

/// The reaper's report about a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The lease's token.
    pub token: Token,
    /// The session.
    pub session: SessionId,
    /// The incarnation.
    pub tag: Tag,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every process is proved gone, and the pane if it was to be removed.
    Gone {
        /// Processes that were signalled.
        killed: Vec<ProcId>,
    },
    /// Some processes or the pane remain.
    Survivors {
        /// The remaining ones with their states, for people.
        left: Vec<String>,
    },
    /// Nothing was done: the server did not answer, the pane was another one, …
    Untouched {
        /// The reason.
        why: String,
    },
    /// Every process is proved gone, except those that serve others or were to be left.
    Spared {
        /// Processes that were signalled.
        killed: Vec<ProcId>,
        /// The remaining ones with the reasons, for people.
        left: Vec<String>,
    },
    /// The command that runs before the end has refused it. Nothing was done.
    Refused {
        /// The command's explanation.
        why: String,
    },
}

impl Outcome {
    /// True if nothing remains that should be ended.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Spared { .. })
    }
}
