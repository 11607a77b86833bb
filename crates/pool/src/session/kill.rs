//! `kill`: the end of a session, which its policy does not start again.

use protocol::policy::RestartPolicy;
use protocol::{Event, Lifecycle, Reason, Session};

use crate::session::lifecycle::{begin_end, has_next_start};
use crate::session::restart_budget;

/// Decides on `kill`. Returns no event if the session is being killed, or is over and does not start again.
#[must_use]
pub fn kill(session: &Session) -> Vec<Event> {
    let ends = match session.lifecycle {
        Lifecycle::Starting | Lifecycle::Live => begin_end(session, Reason::Killed),
        // A session that is ending for another reason is not waited for any longer.
        Lifecycle::Draining if session.reason != Some(Reason::Killed) => begin_end(session, Reason::Killed),
        // The session was to start again, or to be woken.
        _ if has_next_start(session)
            || matches!(session.lifecycle, Lifecycle::Parked | Lifecycle::Lost)
            || may_start_again(session) =>
        {
            Event::SessionStopped { session: session.id, reason: Reason::Killed, exit: session.exit }
        }
        _ => return Vec::new(),
    };
    std::iter::once(ends).chain(restart_budget::reset_budget(session)).collect()
}

/// True if the session's policy may start it again, which is not decided yet.
fn may_start_again(session: &Session) -> bool {
    let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
    over && session.policy.restart != RestartPolicy::No && session.reason != Some(Reason::Killed)
}
