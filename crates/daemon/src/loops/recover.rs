//! Sessions that an earlier daemon left half-way, and restarts whose start is due: settled one by one, from
//! the record.

use std::sync::Arc;
use std::time::Duration;

use pool::slots::{RunIdentity, renew_incarnation};
use protocol::{Incarnation, Lifecycle, Refusal, Session, SessionId, Tag};
use tokio::time::sleep;

use crate::effect::slot::Requester;
use crate::effect::{claimed_job, launch};
use crate::engine::{Daemon, Turn};
use crate::host::files::{self, Fence};
use crate::host::random::identity;
use crate::verb::start::{StartOptions, start_claim, start_next};
use crate::verb::{adopt, detached};

/// Pause after an attempt, before the next one for the same session.
const PAUSE: Duration = Duration::from_secs(1);

/// Settles sessions until the daemon ends: those that are starting or due to restart, and whose start no other task
/// has claimed.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    daemon.world.spawn("release", detached::release_left(Arc::clone(&daemon)));
    let mut turns = daemon.engine.turns();
    loop {
        turns.mark_seen();
        let Ok(due) = daemon.engine.turn(claim).await else { return };
        for (session, is_restart) in due {
            daemon.world.spawn("recover one", settle(Arc::clone(&daemon), session, is_restart));
        }
        turns.changed().await;
    }
}

/// Claims the sessions to settle. Returns each with true if it is a restart.
fn claim(turn: &mut Turn<'_>) -> Vec<(SessionId, bool)> {
    let is_unsettled = |s: &&Session| s.lifecycle == Lifecycle::Starting || pool::session::is_restarting(s);
    let due: Vec<_> = turn
        .pool()
        .sessions()
        .filter(is_unsettled)
        .map(|s| (s.id, pool::session::is_restarting(s)))
        .collect();
    due.into_iter().filter(|(id, _)| turn.volatile.scheduler.begin_start(*id)).collect()
}

/// Settles a session that is claimed.
async fn settle(daemon: Arc<Daemon>, session: SessionId, is_restart: bool) {
    let claim = start_claim(&daemon, session);
    let settled = if is_restart {
        let options = StartOptions { is_restart, ..StartOptions::default() };
        start_next(&daemon, Requester::Pool, (session, options), |_| ()).await.map(drop)
    } else {
        resume(&daemon, session).await
    };
    if let Err(refusal) = settled {
        tracing::warn!(%session, %refusal, "its start was not completed");
    }
    sleep(PAUSE).await;
    drop(claim);
}

/// Resolves a session that is still `starting`: a launch or an adoption was interrupted.
async fn resume(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    let grant = daemon.engine.lock_inside(session, "start").await?;
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await?;
    if let Some(record) = record.as_ref().filter(|s| pool::session::is_being_adopted(s)) {
        return adopt::resume(daemon, record).await;
    }
    let Some(run) = record.filter(|s| s.lifecycle == Lifecycle::Starting).and_then(|s| s.incarnation) else {
        return Ok(());
    };
    match files::fence(&daemon.paths.run, run.tag) {
        Ok(Fence::Never) => {
            // This incarnation has not run and can never run. The start is decided already, and gets a new tag.
            let identity = identity(&*daemon.world.random)?;
            if daemon.engine.turn(move |turn| renew(turn, (session, run.tag), &identity)).await? {
                launch::launch(daemon, (session, false), |_| ()).await?;
            }
        }
        Ok(Fence::Claimed) => resume_claimed(daemon, session, &run).await?,
        Err(error) => tracing::error!(%session, %error, "its job file cannot be read"),
    }
    drop(grant);
    Ok(())
}

/// Records a new incarnation in place of this one, which never ran. Returns false if the session was killed, removed or
/// started again meanwhile.
fn renew(turn: &mut Turn<'_>, (session, tag): (SessionId, Tag), identity: &RunIdentity) -> bool {
    let record = turn.pool().session(session).filter(|record| record.lifecycle == Lifecycle::Starting);
    let is_due = record.is_some_and(|record| record.tag() == Some(tag));
    if is_due {
        renew_incarnation(turn, session, false, identity);
    }
    is_due
}

/// Resolves an incarnation whose init has claimed its job file, so that it is or was in tmux. The session
/// stays `starting` until the incarnation is observed, or its init is proved to have ended.
async fn resume_claimed(daemon: &Arc<Daemon>, session: SessionId, run: &Incarnation) -> Result<(), Refusal> {
    let followed = claimed_job::follow_claimed(daemon, run, Duration::from_secs(2)).await;
    if !followed.is_unseen {
        let outcome = (run.tag, followed.launched);
        daemon.engine.turn(move |turn| launch::commit_outcome(turn, session, outcome)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::{Event, Reason};

    use super::*;
    use crate::engine::tests::{session, start};
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_program_that_nobody_has_seen_stays_starting() {
        for is_seen in [false, true] {
            let test = TestDaemon::start(TestProcesses::default());
            let id = test.create("a").await;
            let run = test.daemon.incarnation(id).await.unwrap();
            test.report_start((id, &run));
            if is_seen {
                let (_, pane) = test.tmux.add_program("a", 500).unwrap();
                test.tmux.change(pane, |pane| pane.tag = Some(run.tag));
            }
            resume_claimed(&test.daemon, id, &run).await.unwrap();
            let expected = if is_seen { Lifecycle::Live } else { Lifecycle::Starting };
            assert_eq!(test.lifecycle(id).await, expected);
        }
    }

    #[tokio::test]
    async fn a_start_that_never_happened_is_not_repeated_once_its_session_is_settled_otherwise() {
        let engine = start();
        let identity = || RunIdentity { tag: Tag([9; 16]), conversation: String::new() };
        for (is_over, is_other, is_due) in
            [(false, false, true), (false, true, false), (true, false, false), (true, true, false)]
        {
            let identity = identity();
            let decide = move |turn: &mut Turn<'_>| {
                let id = session(turn, &format!("a-{is_over}-{is_other}"));
                let own = turn.pool().session(id).and_then(Session::tag).unwrap();
                if is_over {
                    let (reason, detail) = (Reason::Killed, String::new());
                    turn.emit(Event::SessionFailed { session: id, reason, detail, exit: None });
                }
                let tag = if is_other { Tag([8; 16]) } else { own };
                let is_renewed = renew(turn, (id, tag), &identity);
                let after = turn.pool().session(id).and_then(Session::tag).unwrap();
                (is_renewed, after != own)
            };
            assert_eq!(engine.turn(decide).await.unwrap(), (is_due, is_due), "{is_over} {is_other}");
        }
    }
}
