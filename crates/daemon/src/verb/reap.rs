//! `reap`: evaluates the rules of the reaper now, lists its candidates, or explains the rules for a session.

use std::sync::Arc;

use pool::reap;
use protocol::{Reply, Response, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::effect::reap_round;
use crate::engine::{Daemon, Turn};
use crate::sense::tmux_snapshot;

/// Evaluates the rules, and answers with the candidates found. With `force`, they are ended regardless of the
/// limit of kills per minute.
pub(super) async fn reap(daemon: &Arc<Daemon>, op: &ClientOperation, force: bool) -> Reply {
    // If tmux does not answer, the last observation counts.
    drop(tmux_snapshot::take(daemon).await);
    reap_round::round(daemon, force).await;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let settings = context.settings();
        let mut named = reap::all_candidates(turn.pool(), turn.volatile, &settings, turn.now());
        reap::report_findings(turn, &settings, &named);
        named.retain(|candidate| pool::reap::is_to_end(turn.pool(), &settings, candidate));
        if force {
            reap::force(turn, &named);
        }
        let reply = Ok(Response::Candidates(named));
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}

/// Lists the current candidates, and the running sessions that a rule would end.
pub(super) async fn candidates(daemon: &Arc<Daemon>) -> Reply {
    reap_round::sample(daemon).await;
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| {
        let (settings, now) = (context.settings(), (turn.now(), turn.mono()));
        let named = reap::candidates(turn.pool(), turn.volatile, &settings, now);
        named.into_iter().chain(reap::would_end(turn, &settings)).collect()
    };
    Ok(Response::Candidates(daemon.engine.turn(read).await?))
}

/// Explains the result of each rule for a session.
pub(super) async fn explain(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    reap_round::sample(daemon).await;
    let context = Arc::clone(daemon);
    let look = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &wanted)?.clone();
        let settings = context.settings();
        let (pool, now) = (turn.pool(), turn.now());
        let explained = reap::with_rule_inputs(pool, turn.volatile, now, |signs| {
            reap::with_inputs(turn.volatile, &settings, now, |facts| {
                pool::reap::explain(pool, &settings, &session, facts, signs)
            })
        });
        Ok(Response::Explained(explained))
    };
    daemon.engine.turn(look).await?
}
