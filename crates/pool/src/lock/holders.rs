//! The processes that hold users' locks.

use protocol::session::SessionLock;
use protocol::{ProcId, SessionId};

use crate::pool::Pool;

/// Returns the sessions whose users' locks a process holds.
pub fn locked_by(pool: &Pool, process: ProcId) -> impl Iterator<Item = SessionId> {
    let holds = move |lock: &SessionLock| lock.holder == Some(process);
    pool.sessions().filter(move |session| session.lock.as_ref().is_some_and(holds)).map(|session| session.id)
}
