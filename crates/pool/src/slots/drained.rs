//! The draining sessions that have worked off their queues: which are ended, and what the others wait for.

use std::collections::BTreeSet;

use agents::Confirm;
use protocol::{Session, SessionId, Timestamp};

use crate::pool::Pool;
use crate::session::drain::is_drained;
use crate::settings::Settings;
use crate::slots::eviction::{EvictionInputs, at_rest_since};
use crate::slots::inputs::with_inputs;
use crate::turn::Turn;
use crate::volatile::Volatile;

/// Updates the draining sessions that have worked off their queues and have nothing to finish.
pub(crate) fn note_drained(turn: &mut Turn<'_>, settings: &Settings) {
    let pool = turn.pool();
    let ids: Vec<SessionId> = pool.sessions().filter(|s| is_drained(pool, s)).map(|s| s.id).collect();
    let drained: BTreeSet<SessionId> = if ids.is_empty() {
        BTreeSet::new()
    } else {
        with_inputs(pool, turn.volatile, turn.now(), |inputs| {
            let is_done = |s: &Session| check_finished(pool, settings, s, inputs).is_ok();
            ids.into_iter().filter(|id| pool.session(*id).is_some_and(is_done)).collect()
        })
    };
    if turn.volatile.scheduler.set_drained(drained) {
        turn.wake();
    }
}

/// Returns what a drain waits for whose queue is empty, and how to end it at once; none once it is being ended.
#[must_use]
pub fn drain_waits_for(
    pool: &Pool,
    volatile: &Volatile,
    settings: &Settings,
    session: &Session,
    now: Timestamp,
) -> Option<String> {
    if !is_drained(pool, session) || volatile.scheduler.drained().contains(&session.id) {
        return None;
    }
    let why =
        with_inputs(pool, volatile, now, |inputs| check_finished(pool, settings, session, inputs)).err()?;
    let name = &session.name;
    Some(format!("the drain goes on because {why}; `poolctl kill {name}` ends it at once"))
}

/// Checks that a session without messages has nothing to finish: it was given nothing to do, or it is at rest.
///
/// # Errors
/// The reason why it is not at rest.
fn check_finished(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &EvictionInputs<'_>,
) -> Result<(), &'static str> {
    if was_given_nothing(pool, settings, session, inputs) {
        return Ok(());
    }
    at_rest_since(pool, settings, session, inputs).map(drop)
}

/// True if the program is no agent, and neither the pool nor a person gave it anything to do: what it writes is
/// no work that would end.
fn was_given_nothing(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &EvictionInputs<'_>,
) -> bool {
    let Some(run) = &session.incarnation else { return true };
    let agent = settings.agent_of(session);
    let is_agent = agent.shows_composer()
        || matches!(agent.confirm, Confirm::Hook | Confirm::Echo)
        || !session.spec.resume_args.is_empty()
        || pool.notes(session.id).is_some_and(|notes| notes.hooked.is_some());
    let was_spoken_to = session.total_requests > 0
        || session.attached_clients > 0
        || inputs.attended.contains(&run.tag)
        || inputs.delivered_at.contains_key(&run.tag)
        || run.is_adopted();
    !is_agent && !was_spoken_to
}
