//! The check that a session or its directory is not in use, before it is removed or parked.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::{ErrorCode, Name, OsBytes, Refusal, Session, SessionId, counted};

use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::retention::has_worker_messages;

/// The ids that sessions have, as of one turn. The directories are examined after it, so ids that are given out later
/// count as well.
#[derive(Debug)]
pub struct TakenIds {
    on_record: BTreeSet<SessionId>,
    next: u64,
}

impl TakenIds {
    pub fn new(pool: &Pool) -> Self {
        Self { on_record: pool.sessions().map(|session| session.id).collect(), next: pool.next_session() }
    }

    /// True for a session on record, and for one that is created meanwhile.
    pub fn contains(&self, id: SessionId) -> bool {
        self.on_record.contains(&id) || id.0 >= self.next
    }
}

/// Returns the names and directories of all other sessions.
pub fn directories_of_others(pool: &Pool, session: SessionId) -> Vec<(Name, OsBytes)> {
    let others = pool.sessions().filter(|other| other.id != session);
    others.map(|other| (other.name.clone(), other.spec.cwd.clone())).collect()
}

/// Refuses if this directory, which has a session's files, contains the working directory of another session. Each
/// directory is given as named and without symbolic links.
///
/// # Errors
/// Conflict.
pub fn check_files_unused<'a>(
    (dir, real_dir): (&Path, &Path),
    mut others: impl Iterator<Item = (&'a Name, &'a OsBytes, &'a Path)>,
) -> Result<(), Refusal> {
    let is_user = |(_, cwd, real): &(&Name, &OsBytes, &Path)| {
        cwd.as_path().starts_with(dir) || real.starts_with(real_dir)
    };
    match others.find(is_user) {
        Some((name, cwd, _)) => {
            let why = format!("{} is the directory of {name}", cwd.as_path().display());
            refuse(ErrorCode::Conflict, format!("{why}: its files stay until {name} is removed"))
        }
        None => Ok(()),
    }
}

/// Refuses while a client is attached or messages are not worked yet. For an ephemeral session that has ended, only
/// messages for workers count: its prompts go with it. `otherwise` tells the user how to override the refusal.
///
/// # Errors
/// Conflict.
pub fn check_unused(pool: &Pool, session: &Session, otherwise: &str) -> Result<(), Refusal> {
    let name = &session.name;
    if session.attached_clients > 0 && session.lifecycle.holds_slot() {
        return refuse(ErrorCode::Conflict, format!("a client is attached to {name}; {otherwise}"));
    }
    let waiting = pool.queue_counts(Some(session.id));
    let has_ended = session.exit.is_some() || !session.lifecycle.holds_slot();
    let is_gone = session.policy.ephemeral && has_ended && !has_worker_messages(pool, session.id);
    let open = waiting.queued + waiting.claimed + waiting.in_doubt;
    if open > 0 && !is_gone {
        let (open, are) = (counted(open, "message"), if open == 1 { "is" } else { "are" });
        let why = format!("{open} of {name} {are} not worked yet; {otherwise}");
        return refuse(ErrorCode::Conflict, why);
    }
    Ok(())
}
