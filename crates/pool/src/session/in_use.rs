//! The check that a session is not in use, before it is removed or parked.

use protocol::{ErrorCode, Refusal, Session, counted};

use crate::pool::Pool;
use crate::refusal::refuse;

/// Refuses while a client is attached or messages are not worked yet. `otherwise` tells the user how to
/// override it.
///
/// # Errors
/// Conflict.
pub fn check_unused(pool: &Pool, session: &Session, otherwise: &str) -> Result<(), Refusal> {
    let name = &session.name;
    if session.attached_clients > 0 && session.lifecycle.holds_slot() {
        return refuse(ErrorCode::Conflict, format!("a client is attached to {name}; {otherwise}"));
    }
    let waiting = pool.queue_counts(Some(session.id));
    let open = waiting.queued + waiting.claimed + waiting.in_doubt;
    if open > 0 {
        let (open, are) = (counted(open, "message"), if open == 1 { "is" } else { "are" });
        let why = format!("{open} of {name} {are} not worked yet; {otherwise}");
        return refuse(ErrorCode::Conflict, why);
    }
    Ok(())
}
