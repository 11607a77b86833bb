//! `restart`: ends what runs, and starts the session again.

use std::sync::Arc;
use std::time::Duration;

use protocol::request::Restart;
use protocol::{ErrorCode, Refusal, Reply};
use tokio::time::timeout;

use crate::decide::idempotency::ClientOperation;
use crate::effect::launch;
use crate::engine::{Daemon, Turn};
use crate::sense::hook_spool;
use crate::verb::start::{StartOptions, start_claim, start_stopped};
use crate::verb::{clear, termination};

/// Time for reading the spooled hook reports of the incarnation that ended.
const HOOKS_LIMIT: Duration = Duration::from_secs(1);

/// If it fails half-way, the session is still due to start, once its last incarnation is over.
pub(super) async fn restart(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Restart) -> Reply {
    check_name(daemon, &asked).await?;
    let decide = if asked.fresh { pool::session::restart_fresh } else { pool::session::restart };
    let session = termination::begin(daemon, op, (asked.session, asked.grace_ms), decide).await?;
    let ran = session.lifecycle.holds_slot();
    let claim = move |turn: &mut Turn<'_>| turn.volatile.scheduler.begin_start(session.id);
    let claim = daemon.engine.turn(claim).await?.then(|| start_claim(daemon, session.id));
    termination::wait(daemon, &session).await?;
    // Reports of the ended incarnation say nothing about the next one.
    timeout(HOOKS_LIMIT, hook_spool::read_of(daemon, &[session.id])).await.ok();
    // Its next start is certain, and this request's own. Otherwise it may be refused: its log stays until then.
    let is_next = ran && claim.is_some();
    if asked.clear && is_next {
        clear::empty_log(daemon, &session).await?;
    }
    let clear = asked.clear && !is_next;
    let is_restart = ran || pool::session::is_restarting(&session);
    let options = StartOptions { is_restart, fresh: asked.fresh, wait_ms: asked.wait_slot_ms, clear };
    let reply = start_stopped(daemon, op, session.id, options).await;
    drop(claim);
    reply
}

/// Refuses before anything is ended what could not start again, as another tmux session has its name.
async fn check_name(daemon: &Arc<Daemon>, asked: &Restart) -> Result<(), Refusal> {
    let wanted = asked.session.clone();
    let taken = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &wanted)?;
        let is_taken = pool::observe::is_name_taken(turn.pool(), &turn.volatile.observed, session);
        Ok::<_, Refusal>(is_taken.then(|| session.name.clone()))
    };
    let Some(name) = daemon.engine.turn(taken).await?? else { return Ok(()) };
    let why = launch::has_name(daemon, &name).await;
    Err(Refusal::new(ErrorCode::Conflict, format!("{why}; nothing was ended")))
}
