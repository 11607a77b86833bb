//! `pin` and `unpin`: a pinned session is not parked or removed by itself.

use protocol::policy::Policy;
use protocol::{Event, Session};

/// Decides on `pin` and `unpin`. Returns no event if nothing changes.
#[must_use]
pub fn pin(session: &Session, pinned: bool) -> Option<Event> {
    let policy = Policy { pinned, ..session.policy.clone() };
    let changed = policy != session.policy;
    changed.then_some(Event::SessionPolicyChanged { session: session.id, policy })
}
