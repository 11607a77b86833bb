//! Orphans: processes with the marker of something that is over, tmux clients of a dead daemon, silent
//! workers.

use std::collections::BTreeMap;

use protocol::{GeneratorId, ProcId, Session, SessionId, Tag, Timestamp, Token};

use crate::pool::Pool;
use crate::session::lifecycle::is_restarting;
use crate::settings::Settings;

/// The orphans found on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orphans {
    /// Processes by the tag in their environment, found in two scans in a row.
    pub marked: BTreeMap<Tag, Vec<OrphanProcess>>,
    /// tmux clients whose daemon is dead.
    pub clients: Vec<OrphanClient>,
    /// Workers that have been silent.
    pub workers: Vec<SilentWorker>,
}

/// A process with the tag of an ended incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanProcess {
    pub process: ProcId,
    /// The name, for people.
    pub command: String,
    /// The way in which it serves others, if it does: then it is left alone.
    pub serves: Option<String>,
}

/// A tmux client of a dead daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanClient {
    /// The client.
    pub process: ProcId,
    /// The dead daemon.
    pub owner: ProcId,
}

/// A registered worker without a waiting request, or a running host of one that is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilentWorker {
    /// The id; none if it is not registered.
    pub id: Option<GeneratorId>,
    /// The session that it is listed under; 0 for none.
    pub session: SessionId,
    pub process: ProcId,
    /// Time of its last message, or since which it is known not to be registered.
    pub last_seen_at: Timestamp,
}

impl SilentWorker {
    /// Returns its tag as a candidate. The token in that tag belongs to no claim, because tokens of claims begin with
    /// epoch 1.
    pub fn tag(&self) -> Tag {
        let by_host = (1 << 62) | self.session.0;
        let n = self.id.map_or(by_host, |id| id.0);
        Tag::for_claim(Token { epoch: protocol::Epoch(0), n })
    }

    /// Its name and its silence, for people.
    pub(crate) fn silence(&self, seconds: u64) -> String {
        match self.id {
            Some(id) => format!("worker {} was silent for {seconds} s", id.0),
            None => format!(
                "process {}, the host of a worker, has not registered for {seconds} s",
                self.process.pid
            ),
        }
    }
}

/// True if a worker has been silent for longer than allowed.
pub(crate) fn is_silent(pool: &Pool, settings: &Settings, worker: &SilentWorker, now: Timestamp) -> bool {
    pool.age(now, worker.last_seen_at) > settings.reap.stale_worker
}

/// The session of an ended incarnation or claim.
pub(crate) fn ended_owner(pool: &Pool, tag: Tag) -> Option<SessionId> {
    let ended = |s: &&Session| !s.lifecycle.holds_slot() && !is_restarting(s);
    match pool.tagged(tag) {
        Some(session) => Some(session).filter(ended).map(|s| s.id),
        None => pool.retired(tag),
    }
}
