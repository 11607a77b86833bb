//! `reap` and `reap --explain`: what should be dead, why, and that it is looked for now.

use std::sync::Arc;

use pool::reap;
use protocol::{Reply, Response, SessionRef};

use crate::decide::idempotency::Op;
use crate::effect::rules;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::sense::snapshot;

/// Looks now, and answers with what there is. `force`: that is ended whatever the limit of kills.
pub(super) async fn run(daemon: &Arc<Daemon>, op: &Op, force: bool) -> Reply {
    // What cannot be seen now is known from before.
    drop(snapshot::take(daemon).await);
    rules::round(daemon, force).await;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let settings = context.settings();
        let mut named = reap::named(turn.pool(), turn.volatile, &settings, turn.now());
        reap::report(turn, &settings, &named);
        named.retain(|candidate| pool::stale::is_to_end(turn.pool(), &settings, candidate));
        if force {
            reap::force(turn, &named);
        }
        let reply = Ok(Response::Candidates(named));
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}

/// What each rule says of a session.
pub(super) async fn explain(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    rules::sample(daemon).await;
    let context = Arc::clone(daemon);
    let look = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?.clone();
        let settings = context.settings();
        let (pool, now) = (turn.pool(), turn.now());
        let explained = reap::with_signs(pool, turn.volatile, now, |signs| {
            reap::with_facts(turn.volatile, &settings, now, |facts| {
                pool::stale::explain::explain(pool, &settings, &session, facts, signs)
            })
        });
        Ok(Response::Explained(explained))
    };
    daemon.engine.turn(look).await?
}
