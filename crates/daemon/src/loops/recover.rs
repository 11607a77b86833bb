//! Sessions that an earlier daemon left half-way, or that are between two runs: settled one by one, from the record.

use crate::host::identity::identity;
use crate::verb::start;
use crate::verb::start::Again;
use pool::scheduler::renew;
use std::sync::Arc;
use std::time::Duration;

use protocol::session::Reason;
use protocol::{Incarnation, Lifecycle, Refusal, Session, SessionId};
use tokio::time::sleep;

use crate::effect::launch;
use crate::effect::launch::Launched;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::files;
use crate::host::files::Fence;

use crate::verb::adopt;

/// Between two tries for one session.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// Settles for ever what nobody is at: creations of which nobody knows what became, and sessions
/// that were ended in order to start again.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.borrow_and_update();
        let Ok(due) = daemon.engine.turn(claim).await else { return };
        for (session, between) in due {
            tokio::spawn(settle(Arc::clone(&daemon), session, between));
        }
        if turns.changed().await.is_err() {
            return;
        }
    }
}

/// Sessions to settle, and whether each is between two runs.
pub(crate) fn claim(turn: &mut Turn<'_>) -> Vec<(SessionId, bool)> {
    let open = |s: &&Session| s.lifecycle == Lifecycle::Starting || pool::is_between(s);
    let due: Vec<_> = turn.pool().sessions().filter(open).map(|s| (s.id, pool::is_between(s))).collect();
    due.into_iter().filter(|(id, _)| turn.volatile.scheduler.begin_start(*id)).collect()
}

pub(crate) async fn settle(daemon: Arc<Daemon>, session: SessionId, between: bool) {
    let starting = start::Starting::new(&daemon, session);
    let settled = if between {
        start::again(&daemon, None, session, Again { ended: true, ..Again::default() }, |_| ())
            .await
            .map(drop)
    } else {
        resume(&daemon, session).await
    };
    if let Err(refusal) = settled {
        tracing::warn!(%session, %refusal, "not settled yet");
    }
    sleep(PAUSE).await;
    drop(starting);
}

/// Finds out what became of a creation of which nobody knows.
pub(crate) async fn resume(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    let grant = daemon.engine.lock_inside(session, "start").await?;
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await?;
    if let Some(record) = record.as_ref().filter(|s| pool::admit::is_adoption(s)) {
        return adopt::resume(daemon, record).await;
    }
    let Some(run) = record.filter(|s| s.lifecycle == Lifecycle::Starting).and_then(|s| s.incarnation) else {
        return Ok(());
    };
    match files::fence(&daemon.paths.run, run.tag) {
        Ok(Fence::Never) => {
            // It never ran and never will; what was decided still holds, with a new tag.
            let identity = identity()?;
            daemon.engine.turn(move |turn| renew(turn, session, false, &identity)).await?;
            launch::launch(daemon, session, |_| ()).await?;
        }
        Ok(Fence::Claimed) => found_again(daemon, session, &run).await?,
        Err(error) => tracing::error!(%session, %error, "its job file cannot be looked at"),
    }
    drop(grant);
    Ok(())
}

/// Its init claimed the job: it is, or was, in tmux. Until it is seen, or its init is proved to have
/// ended, the session stays `starting`.
pub(crate) async fn found_again(
    daemon: &Arc<Daemon>,
    session: SessionId,
    run: &Incarnation,
) -> Result<(), Refusal> {
    let run = launch::claimed(daemon, run);
    let placed = launch::find(daemon, &run, Duration::from_secs(2)).await;
    let seen = placed.is_some();
    let mut launched = launch::await_start(daemon, placed.unwrap_or_else(|| run.clone())).await;
    let ended = run.init.is_some_and(|init| process::identity::exited(init).unwrap_or(false));
    if let Launched::Unknown { .. } = launched
        && ended
    {
        let detail = "its init ended before the program ran".to_owned();
        launched = Launched::Failed { reason: Reason::TmuxFailed, detail, exit: None };
    }
    let ran_unseen = matches!(launched, Launched::Ran { exit: None, .. }) && !seen && !ended;
    if !ran_unseen {
        daemon.engine.turn(move |turn| launch::settle(turn, session, (run.tag, launched))).await?;
    }
    Ok(())
}
