//! The draining sessions that have worked off their queues: which are ended, and what the others wait for.

use std::collections::{BTreeMap, BTreeSet};

use protocol::Session;

use crate::session::drain_progress::{drains, is_drained};
use crate::settings::Settings;
use crate::slots::eviction::at_rest_since;
use crate::slots::inputs::with_inputs;
use crate::turn::Turn;
use crate::volatile::Volatile;

/// Updates the draining sessions that have worked off their queues: those at rest, and the reasons why the others
/// are not.
pub(crate) fn note_drained(turn: &mut Turn<'_>, settings: &Settings) {
    let pool = turn.pool();
    let found: Vec<&Session> = pool.sessions().filter(|session| is_drained(pool, session)).collect();
    let (mut drained, mut awaited) = (BTreeSet::new(), BTreeMap::new());
    if !found.is_empty() {
        with_inputs(pool, turn.volatile, turn.now(), |inputs| {
            for session in found {
                match at_rest_since(pool, settings, session, inputs) {
                    Ok(_) => drop(drained.insert(session.id)),
                    Err(why) => drop(awaited.insert(session.id, why)),
                }
            }
        });
    }
    if turn.volatile.scheduler.set_drained(drained, awaited) {
        turn.wake();
    }
}

/// Returns what a drain with an empty queue waits for, and how to end it at once; none once it is over or being ended.
pub fn drain_waits_for(volatile: &Volatile, session: &Session) -> Option<String> {
    let why = volatile.scheduler.drain_awaits(session.id).filter(|_| drains(session))?;
    let name = &session.name;
    Some(format!("the drain goes on because {why}; `poolctl kill {name}` ends it at once"))
}
