//! What `poold` and the reaper say to each other: candidates, leases, verdicts.

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, ProcId, ServerId, SessionId, Tag, Token};
use crate::life::Leftovers;
use crate::text::{Name, OsBytes};

mod rule;

pub use rule::{Action, Rule};

/// Something that should be dead, as `poold` names it. The reaper never picks one by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The session.
    pub session: SessionId,
    /// Its name, for people.
    pub name: Name,
    /// Why.
    pub kind: CandidateKind,
    /// A sentence of evidence, for people.
    pub evidence: String,
    /// The incarnation to end.
    pub tag: Tag,
    /// The tmux server that its pane is in, once known.
    pub server: Option<ServerId>,
    /// Its pane, once known.
    pub pane: Option<PaneId>,
    /// Its init, once known.
    pub init: Option<ProcId>,
    /// Its agent, once known.
    pub agent: Option<ProcId>,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
    /// Whether the pane goes too; a restart keeps it until the new one stands.
    pub remove_pane: bool,
    /// Its control group, where it has one: all that is in it belongs to it.
    pub cgroup: Option<OsBytes>,
    /// The rule that found it; none where somebody asked for its end, or it ended by itself.
    pub rule: Option<Rule>,
}

/// Why something is a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateKind {
    /// A user asked for its end.
    Requested,
    /// Its program is over and its pane is left.
    ZombiePane,
    /// A pane with the tag of an incarnation that is over.
    RetiredTag,
    /// Its pane or its server is gone, and processes of it are left.
    Leftover,
    /// A generator that was silent for longer than its lease and lives on: its process is the candidate's
    /// `init`, its tag the token of the claim ([`Tag::of`]).
    StaleWorker,
    /// Processes with the mark of an incarnation, or of a claim, that is over.
    Orphan,
    /// A tmux client that a `poold` which is dead left: it is the candidate's `init`.
    StaleClient,
}

/// The right to end a candidate: the session's lock, and what to act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The fencing token.
    pub token: Token,
    /// The candidate, checked again when the lease was given.
    pub candidate: Candidate,
    /// Where tmux listens.
    pub tmux_socket: OsBytes,
    /// Processes that are never signalled: the tmux server, the daemons.
    pub protected: Vec<u32>,
    /// The tmux program.
    pub tmux: OsBytes,
    /// Where `poold` listens: the mark of a claim is one only together with it.
    pub socket: OsBytes,
    /// Time between the first KILL and giving up, in milliseconds.
    pub verify_ms: u64,
    /// What becomes of what it detached.
    pub leftovers: Leftovers,
    /// Where this pool's incarnations have their files: an init of it was started for one of them.
    pub run: OsBytes,
    /// The session's private directory: what listens in there serves nobody else.
    pub private: Option<OsBytes>,
    /// The command to run before; none where it is empty.
    pub before: Vec<OsBytes>,
    /// The command to run after.
    pub after: Vec<OsBytes>,
}

/// What the reaper found and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The lease's token.
    pub token: Token,
    /// The session.
    pub session: SessionId,
    /// The incarnation.
    pub tag: Tag,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every process is proved gone, and the pane where it was to go.
    Gone {
        /// Processes that were signalled.
        killed: Vec<ProcId>,
    },
    /// Something is left.
    Survivors {
        /// What, each with its state, for people.
        left: Vec<String>,
    },
    /// Nothing was done, and why: the server did not answer, it was not the same pane, ….
    Untouched {
        /// Why.
        why: String,
    },
    /// Every process is proved gone but for those that serve others, or were to be left.
    Spared {
        /// Processes that were signalled.
        killed: Vec<ProcId>,
        /// What was left, each with the reason, for people.
        left: Vec<String>,
    },
    /// The command that is asked before refused it: nothing was done.
    Refused {
        /// What it said.
        why: String,
    },
}

impl Outcome {
    /// Whether nothing is left that should be dead.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Spared { .. })
    }
}
