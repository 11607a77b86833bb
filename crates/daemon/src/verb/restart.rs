//! `restart`: ends what runs, and starts the session again.

use std::sync::Arc;
use std::time::Duration;

use protocol::request::Restart;
use protocol::{ErrorCode, Refusal, Reply, SessionId, Spec};
use tokio::time::timeout;

use crate::decide::idempotency::ClientOperation;
use crate::effect::launch;
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::files;
use crate::sense::{hook_spool, tmux_snapshot, user_dirs};
use crate::verb::start::{self, StartOptions, start_claim, start_stopped};
use crate::verb::{clear, termination};

/// Time for reading the spooled hook reports of the incarnation that ended.
const HOOKS_LIMIT: Duration = Duration::from_secs(1);

/// Restarts a session. If this fails half-way, the session is still due to start once its last incarnation has ended.
pub(super) async fn restart(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Restart) -> Reply {
    check_startable(daemon, &asked).await?;
    let decide = if asked.fresh { pool::session::restart_fresh } else { pool::session::restart };
    let session = termination::begin(daemon, op, (asked.session, asked.grace_ms), decide).await?;
    let ran = session.lifecycle.holds_slot();
    let claim = move |turn: &mut Turn<'_>| turn.volatile.scheduler.begin_start(session.id);
    let claim = daemon.engine.turn(claim).await?.then(|| start_claim(daemon, session.id));
    termination::wait(daemon, &session).await?;
    // The ended incarnation's reports are read first, so that none of them is taken for the next incarnation's.
    timeout(HOOKS_LIMIT, hook_spool::read_of(daemon, &[session.id])).await.ok();
    // The next start is certain and belongs to this request, so the log can be emptied now. Otherwise the start may be
    // refused, and the log stays until it succeeds.
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

/// Refuses before anything is ended if the session could not start again: another tmux session has its name, its
/// directory or the sessions' init is gone, the disk is full, or none can be started in the tmux server.
async fn check_startable(daemon: &Arc<Daemon>, asked: &Restart) -> Result<(), Refusal> {
    let wanted = asked.session.clone();
    let read = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &wanted)?;
        let is_taken = pool::observe::is_name_taken(turn.pool(), &turn.volatile.observed, session);
        // If nothing runs, or a restart is under way, this request ends nothing, so its place is not checked.
        let spec = (!pool::session::restart(session).is_empty()).then(|| session.spec.clone());
        Ok::<_, Refusal>((session.id, is_taken.then(|| session.name.clone()), spec))
    };
    let (id, taken, spec) = daemon.engine.turn(read).await??;
    let unended = |why: String| format!("{why}; nothing was ended");
    if let Some(name) = taken {
        let why = launch::has_name(daemon, &name).await;
        return Err(Refusal::new(ErrorCode::Conflict, unended(why)));
    }
    let Some(spec) = spec else { return Ok(()) };
    let checked = check_place(daemon, (id, &spec)).await;
    checked.map_err(|refusal| Refusal { message: unended(refusal.message), ..refusal })
}

/// Checks the directories, the disk, and that sessions can be started in the tmux server as it is now: the last
/// observation may precede a trouble, and the program would be ended for a start that fails.
async fn check_place(daemon: &Arc<Daemon>, (id, spec): (SessionId, &Spec)) -> Result<(), Refusal> {
    user_dirs::check_cwd(daemon, (id, &spec.cwd)).await?;
    check_own_dir(daemon, id).await?;
    tmux_snapshot::take(daemon).await?;
    // A job is as large as its command and its environment.
    start::check(daemon, serde_json::to_vec(spec).map_or(0, |job| job.len())).await
}

/// Checks that the session's program has put nothing else in place of the session's directories.
async fn check_own_dir(daemon: &Daemon, id: SessionId) -> Result<(), Refusal> {
    let dir = daemon.paths.session(id);
    let look = move || files::check_session_dir(&dir);
    match daemon.blocking.with_timeout(Purpose::Launch, look).await {
        Some(checked) => checked.map_err(|error| Refusal::failed(error.to_string())),
        None => Err(Refusal::failed("the file system of the session's directory does not answer")),
    }
}
