//! The health of the observation of a session's pane.

use std::time::Duration;

use protocol::reply::{PaneObservation, TransportHealth};
use protocol::tmux::Server;
use protocol::{Incarnation, Session, Timestamp};

use crate::observe::state::Observed;
use crate::pool::Pool;

/// The health of the observation of a session's pane. Without a watcher, and while its tmux server does not
/// answer, what is known is from the last complete listing; `is_silent`: the watcher has said nothing for longer
/// than it should.
pub fn transport_health(
    (pool, now): (&Pool, Timestamp),
    observed: &Observed,
    session: &Session,
    is_silent: bool,
) -> TransportHealth {
    let (last_error_at, last_error) = observed.trouble().cloned().unzip();
    let health = |state, since| {
        let (last_error, last_error_at) = (last_error.clone(), last_error_at);
        TransportHealth { state, means: observed.transport(), since, last_error, last_error_at }
    };
    let run = session.incarnation.as_ref().filter(|run| session.lifecycle.holds_slot() && run.pane.is_some());
    let Some(run) = run else { return health(PaneObservation::Unobserved, Some(session.changed_at)) };
    let is_seen = is_seen(observed, run) || is_new(pool, observed, (session, run), now);
    if observed.watcher().is_some() && !is_silent && is_seen {
        let since =
            pool.latest(now, [observed.watcher_since(), session.changed_at, observed.answers_since()]);
        return health(PaneObservation::Observed, Some(since));
    }
    let seen_at = observed.seen_at().filter(|_| was_seen(pool, observed, (session, run), now));
    match pool.latest_shown(now, session.verified_at.into_iter().chain(seen_at)) {
        Some(at) => health(PaneObservation::Stale, Some(run.missing_since.unwrap_or(at))),
        None => health(PaneObservation::Unobserved, Some(session.changed_at)),
    }
}

/// Time within which the watcher notices a new pane.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// True if the pane was verified by its launch a moment ago, and the watcher may not have seen it yet.
fn is_new(
    pool: &Pool,
    observed: &Observed,
    (session, run): (&Session, &Incarnation),
    now: Timestamp,
) -> bool {
    let is_fresh = session.verified_at.is_some_and(|at| pool.age(now, at) < NOTICED_WITHIN);
    is_fresh && run.missing_since.is_none() && !matches!(observed.state().server, Server::Unknown(_))
}

/// True if the last complete listing showed the pane.
fn was_seen(
    pool: &Pool,
    observed: &Observed,
    (session, run): (&Session, &Incarnation),
    now: Timestamp,
) -> bool {
    let is_listed = |from| from >= pool.moment(now, session.changed_at);
    run.missing_since.is_none() && observed.listed_from().is_some_and(is_listed)
}

/// True if the last observation shows the pane in its own server.
fn is_seen(observed: &Observed, run: &Incarnation) -> bool {
    let state = observed.state();
    let server = matches!(state.server, Server::Up(server) if run.server == Some(server));
    server && observed.pane_of(run).is_some() && run.missing_since.is_none()
}
