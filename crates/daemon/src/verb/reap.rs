//! `reap` and `reap --explain`: what should be dead, why, and that it is looked for now.

use std::sync::Arc;

use protocol::{Reply, Response, SessionRef};

use super::sync;
use crate::context::Daemon;
use crate::engine::Turn;
use crate::op::Op;
use crate::{stale, view};

/// Looks now, and answers with what there is. `force`: that is ended whatever the limit of kills.
pub(super) async fn reap(daemon: &Arc<Daemon>, op: &Op, force: bool) -> Reply {
    // What cannot be seen now is known from before.
    drop(sync::snapshot(daemon).await);
    stale::look_around(daemon, force).await;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let mut named = view::named(turn, &context);
        let settings = context.settings();
        stale::report(turn, &context, &named);
        named.retain(|candidate| pool::stale::is_to_end(turn.pool(), &settings, candidate));
        if force {
            stale::force(turn, &named);
        }
        let reply = Ok(Response::Candidates(named));
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}

/// What each rule says of a session.
pub(super) async fn explain(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    stale::look(daemon).await;
    let context = Arc::clone(daemon);
    let look = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?.clone();
        let settings = context.settings();
        let explained = stale::with_signs(turn, &context, |turn, signs| {
            view::with_stale_facts(turn, &context, |facts| {
                pool::stale::explain::explain(turn.pool(), &settings, &session, facts, signs)
            })
        });
        Ok(Response::Explained(explained))
    };
    daemon.engine.turn(look).await?
}
