//! The draining sessions that have worked off their queues: which are ended, and what the others wait for.

use std::collections::BTreeSet;

use protocol::{Session, SessionId, Timestamp};

use crate::pool::Pool;
use crate::session::drain::is_drained;
use crate::settings::Settings;
use crate::slots::eviction::at_rest_since;
use crate::slots::inputs::with_inputs;
use crate::turn::Turn;
use crate::volatile::Volatile;

/// Updates the draining sessions that have worked off their queues and are at rest.
pub(crate) fn note_drained(turn: &mut Turn<'_>, settings: &Settings) {
    let pool = turn.pool();
    let ids: Vec<SessionId> = pool.sessions().filter(|s| is_drained(pool, s)).map(|s| s.id).collect();
    let drained: BTreeSet<SessionId> = if ids.is_empty() {
        BTreeSet::new()
    } else {
        with_inputs(pool, turn.volatile, turn.now(), |inputs| {
            let is_done = |s: &Session| at_rest_since(pool, settings, s, inputs).is_ok();
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
        with_inputs(pool, volatile, now, |inputs| at_rest_since(pool, settings, session, inputs)).err()?;
    let name = &session.name;
    Some(format!("the drain goes on because {why}; `poolctl kill {name}` ends it at once"))
}
