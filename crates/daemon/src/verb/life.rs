//! `park`, `restore`, `drain`, `pin`, `clear`: what becomes of a session that there is.

use std::sync::Arc;

use protocol::request::{Park, Pin, Restore};
use protocol::{
    ErrorCode, Event, Lifecycle, Reason, Refusal, Reply, Response, Session, SessionId, SessionRef,
};
use tokio::time::Instant;

use super::end::{self, Again};
use super::{create, input, shown, sync};
use crate::context::{Daemon, pane_of};
use crate::engine::Turn;
use crate::handle::in_doubt;
use crate::op::Op;
use crate::slow::{self, Purpose};
use crate::{locking, park};

/// Answers when the slot is free.
pub(super) async fn park(daemon: &Arc<Daemon>, op: &Op, asked: Park) -> Reply {
    let (operation, force, grace_ms) = (op.clone(), asked.force, asked.grace_ms);
    let under = locking::current();
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?.clone();
        locking::free_for(turn, session.id, under)?;
        let events = pool::admit::park(turn.pool(), &session, force)?;
        let tag = session.incarnation.as_ref().map(|run| run.tag).filter(|_| !events.is_empty());
        if let Some(tag) = tag {
            turn.rest.view.verdicts.remove(&tag);
            if let Some(grace) = grace_ms {
                turn.rest.view.graces.insert(tag, grace);
            }
            if !force {
                turn.rest.view.guarded.insert(tag);
            }
        }
        operation.begun(turn, session.id);
        turn.emit_all(events);
        let now = turn.pool().session(session.id).cloned();
        Ok((now.unwrap_or(session), tag.filter(|_| !force)))
    };
    let (session, guarded) = daemon.engine.turn(decide).await??;
    let kept = match guarded {
        Some(tag) => park::end_unattended(daemon, session.id, tag).await,
        None => None,
    };
    end::ended_unless(daemon, &session, |s| s.lifecycle == Lifecycle::Live).await?;
    let (context, operation, id) = (Arc::clone(daemon), op.clone(), session.id);
    let conclude = move |turn: &mut Turn<'_>| {
        let live = turn.pool().session(id).is_some_and(|s| s.lifecycle == Lifecycle::Live);
        let reply = if live && guarded.is_some() {
            let why = kept.unwrap_or_else(|| "somebody attached to it meanwhile".to_owned());
            let why = format!("{} is not parked: {why}; park --force parks it all the same", session.name);
            Err(Refusal::new(ErrorCode::Conflict, why))
        } else {
            shown::reply(turn, &context, id)
        };
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

/// One: answers when it runs. All that were lost: they are due from now on, one after the other.
pub(super) async fn restore(daemon: &Arc<Daemon>, op: &Op, asked: Restore) -> Reply {
    let Some(wanted) = asked.session else { return restore_all(daemon, op).await };
    let session = shown::find(daemon, wanted).await?;
    let how = Again { wait_ms: asked.wait_slot_ms, ..Again::default() };
    if session.lifecycle.holds_slot() || pool::is_between(&session) {
        return create::existing(daemon, op, session.id).await;
    }
    end::start_again(daemon, op, session.id, how).await
}

async fn restore_all(daemon: &Arc<Daemon>, op: &Op) -> Reply {
    // What is lost is known once somebody has looked.
    sync::snapshot(daemon).await?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let events = pool::admit::restore_all(turn.pool(), context.loaded().life.spacing, turn.now());
        let lost: Vec<SessionId> = events.iter().filter_map(Event::session).collect();
        turn.emit_all(events);
        let socket = context.tmux_socket();
        let shown = lost
            .iter()
            .filter_map(|id| turn.pool().session(*id))
            .map(|s| shown::shown(turn, &context, &socket, s));
        let reply = Ok(Response::Sessions(shown.collect()));
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}

/// Answers at once: what is queued is finished first.
pub(super) async fn drain(daemon: &Arc<Daemon>, op: &Op, wanted: SessionRef) -> Reply {
    let id = shown::find(daemon, wanted.clone()).await?.id;
    let under = locking::current();
    let until = Instant::now() + create::OUTCOME_LIMIT;
    loop {
        wait_while(daemon, id, is_in_passing).await?;
        let decide = move |turn: &mut Turn<'_>, session: &Session| {
            locking::free_for(turn, session.id, under)?;
            let events = pool::admit::drain(turn.pool(), session)?;
            turn.emit_all(events);
            Ok(())
        };
        let reply = at_once(daemon, op, wanted.clone(), decide).await;
        let conflicts = reply.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Conflict);
        let passes = move |turn: &mut Turn<'_>| turn.pool().session(id).is_some_and(is_in_passing);
        // It may have begun to start or to end since it was waited for.
        if !conflicts || Instant::now() >= until || !daemon.engine.turn(passes).await? {
            return reply;
        }
    }
}

/// `pin` and `unpin`.
pub(super) async fn pin(daemon: &Arc<Daemon>, op: &Op, asked: Pin) -> Reply {
    let decide = move |turn: &mut Turn<'_>, session: &Session| {
        turn.emit_all(pool::admit::pin(session, asked.pinned));
        Ok(())
    };
    at_once(daemon, op, asked.session, decide).await
}

/// What is decided within one turn, and answered with the session as it is then.
async fn at_once(
    daemon: &Arc<Daemon>,
    op: &Op,
    wanted: SessionRef,
    decide: impl FnOnce(&mut Turn<'_>, &Session) -> Result<(), Refusal> + Send + 'static,
) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decided = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?.clone();
        decide(turn, &session)?;
        let reply = shown::reply(turn, &context, session.id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decided).await?
}

/// Empties the log, and the history of the terminal where there is one.
pub(super) async fn clear(daemon: &Arc<Daemon>, op: &Op, wanted: SessionRef) -> Reply {
    let session = shown::find(daemon, wanted).await?;
    let grant = daemon.engine.lock(session.id, "clear").await?;
    let dir = daemon.log_options(session.id).dir;
    let cleared = slow::limited(Purpose::Logs, move || process::log_writer::clear(&dir)).await;
    let pane = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).and_then(pane_of);
    let reply = match (cleared, pane) {
        (Some(Ok(())), Some(pane)) => input::answered(daemon.tmux.clear_history(pane).await),
        (Some(Ok(())), None) => Ok(Response::Done),
        (Some(Err(error)), _) => Err(Refusal::new(
            ErrorCode::Failed,
            format!("the log of {} is not emptied: {error}", session.name),
        )),
        (None, _) => Err(Refusal::new(ErrorCode::Failed, "the file system does not answer")),
    };
    drop(grant);
    let (operation, answer) = (op.clone(), reply.clone());
    daemon.engine.turn(move |turn| operation.conclude(turn, &answer)).await?;
    reply
}

/// Waits as long as this holds of a session.
async fn wait_while(daemon: &Daemon, id: SessionId, holds: fn(&Session) -> bool) -> Result<(), Refusal> {
    let over = move |turn: &mut Turn<'_>| (!turn.pool().session(id).is_some_and(holds)).then_some(());
    daemon.engine.wait_for(Some(create::OUTCOME_LIMIT), over).await
}

fn is_starting(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Starting
}

/// It starts, ends by itself, or is between two runs: what comes of that is not known yet.
fn is_in_passing(session: &Session) -> bool {
    let drains = matches!(session.reason, Some(Reason::Drained | Reason::Killed));
    is_starting(session) || pool::is_between(session) || session.lifecycle == Lifecycle::Draining && !drains
}

/// Starts what is parked or lost, because somebody wants to look at it.
pub(super) async fn wake(daemon: &Arc<Daemon>, session: Session) -> Result<Session, Refusal> {
    let aside =
        |s: &Session| s.is_being_parked() || matches!(s.lifecycle, Lifecycle::Parked | Lifecycle::Lost);
    let id = session.id;
    if aside(&session) {
        let daemon = Arc::clone(daemon);
        // In a task of its own: a client that leaves does not stop it half-way.
        let wake = async move {
            end::ended_unless(&daemon, &session, |s| s.lifecycle == Lifecycle::Live).await?;
            end::again(&daemon, None, id, Again::default(), |_| ()).await
        };
        let woken = tokio::spawn(locking::under(locking::current(), wake));
        woken.await.map_err(|_| in_doubt())??;
    }
    wait_while(daemon, id, is_starting).await?;
    shown::find(daemon, id.into()).await
}
