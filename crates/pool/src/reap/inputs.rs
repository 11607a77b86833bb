//! Volatile facts that candidates are found by.

use std::collections::BTreeSet;

use protocol::tmux::TmuxState;
use protocol::{Name, ProcId, SessionId, Timestamp};

use crate::clock::Moment;
use crate::pool::Pool;
use crate::reap::orphans::Orphans;

/// Volatile facts that candidates are found by.
#[derive(Debug)]
pub struct ReapInputs<'a> {
    /// The observed state of tmux.
    pub state: &'a TmuxState,
    /// Processes of records that are proved to have ended.
    pub exited: &'a BTreeSet<ProcId>,
    pub now: Timestamp,
    /// Beginning of the last complete listing of a server that answered.
    pub listed_from: Option<Moment>,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
    /// Draining sessions that have worked off their queues and are at rest.
    pub drained: &'a BTreeSet<SessionId>,
    /// Processes and workers that belong to nothing running.
    pub orphans: &'a Orphans,
}

/// The name of a candidate's session; a placeholder if its record was deleted.
pub(crate) fn session_name(pool: &Pool, session: SessionId) -> Name {
    let unnamed = || "removed".parse().unwrap_or_else(|_| unreachable!("a valid name"));
    pool.session(session).map_or_else(unnamed, |session| session.name.clone())
}
