//! Claims and conversations, as the judge remembers them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{ProcId, Tag, Token};
use tokio::time::Instant;

/// The lease of a claim: the longest time without a heartbeat.
pub(crate) const LEASE: Duration = Duration::from_secs(20);

/// Time before the end of a lease from which on a heartbeat may come too late.
const MARGIN: Duration = Duration::from_secs(2);

/// A claim whose worker sends heartbeats.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) token: Token,
    /// When the last heartbeat was sent that was acknowledged, and the one that is not answered yet.
    pub(super) renewed: Instant,
    pub(super) pending: Option<Instant>,
}

impl Kept {
    /// True if the lease cannot have ended.
    pub(super) fn holds(&self) -> bool {
        let ends = self.renewed + LEASE;
        Instant::now() < ends || self.pending.is_some_and(|sent| sent + MARGIN < ends)
    }
}

/// A process that handles a claim.
#[derive(Clone)]
pub(super) struct Handled {
    pub(super) token: Token,
    pub(super) process: ProcId,
    /// The incarnation of the host that has started it.
    pub(super) host: Option<Tag>,
    /// True if the message may not go on before the process is gone: it belongs to the host of a worker, or the reaper
    /// ends its worker.
    pub(super) is_proved: bool,
}

/// Conversations of which the pool hears nothing.
#[derive(Default, Clone)]
pub(super) struct Quiet {
    /// The conversation of each incarnation.
    pub(super) of: BTreeMap<Tag, String>,
    /// Conversations to which a person spoke.
    pub(super) by_person: BTreeSet<String>,
    /// The incarnations and conversations to which the pool spoke.
    pub(super) pasted: BTreeSet<Tag>,
    pub(super) by_pool: BTreeSet<String>,
}
