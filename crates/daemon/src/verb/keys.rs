//! `keys`, and effects on a pane as all verbs share them.

use std::sync::Arc;

use protocol::request::Keys;
use protocol::{ErrorCode, Lifecycle, Refusal, Reply, Response, SessionRef};
use tmux::{Answer, PaneRef, TmuxError};

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::verb::shown;

pub(crate) async fn keys(daemon: &Arc<Daemon>, op: &Op, asked: Keys) -> Reply {
    let keys = tmux::keys::parse(&asked.keys).map_err(|e| Refusal::new(ErrorCode::Usage, e.to_string()))?;
    if keys.is_empty() {
        return Err(Refusal::new(ErrorCode::Usage, "no keys"));
    }
    let tmux = Arc::clone(&daemon.tmux);
    on_pane(daemon, op, (asked.session, "keys"), async move |pane| tmux.keys(pane, &keys).await).await
}

/// Does this once to the pane of a session that runs, under its lock; its user does it.
pub(crate) async fn on_pane(
    daemon: &Arc<Daemon>,
    op: &Op,
    (session, purpose): (SessionRef, &'static str),
    act: impl AsyncFnOnce(PaneRef) -> Result<Answer, TmuxError>,
) -> Reply {
    let session = shown::find(daemon, session).await?;
    let grant = daemon.engine.lock(session.id, purpose).await?;
    let id = session.id;
    let begun = op.clone();
    let begin = move |turn: &mut Turn<'_>| {
        begun.begun(turn, id);
        let session = turn.pool().session(id).cloned();
        let run = session.as_ref().and_then(|s| s.incarnation.as_ref());
        turn.volatile.prompts.attend(run.map(|run| run.tag));
        session
    };
    let now = daemon.engine.turn(begin).await?;
    let live = now.filter(|s| s.lifecycle == Lifecycle::Live);
    let Some(pane) = live.and_then(|s| s.incarnation).as_ref().and_then(pane_of) else {
        return Err(Refusal::new(ErrorCode::Refused, format!("{} does not run", session.name)));
    };
    let done = act(pane).await;
    drop(grant);
    let (operation, reply) = (op.clone(), answered(done));
    let answer = reply.clone();
    let conclude = move |turn: &mut Turn<'_>| {
        let (mono, now) = (turn.mono(), turn.now());
        turn.volatile.prompts.keys_pressed(id, mono);
        turn.volatile.prompts.delivered(pane.tag, now);
        operation.conclude(turn, &answer);
    };
    daemon.engine.turn(conclude).await?;
    reply
}

/// The reply that an effect on a pane comes to.
pub(crate) fn answered(effect: Result<Answer, tmux::TmuxError>) -> Reply {
    let failed = |message: &str| Err(Refusal::new(ErrorCode::Failed, message));
    match effect {
        Ok(Answer::Done) => Ok(Response::Done),
        Ok(Answer::InMode) => failed("the pane is in copy mode, which would swallow it; nothing was typed"),
        Ok(Answer::InputOff) => failed("the pane does not take input; nothing was typed"),
        Ok(Answer::Dead | Answer::Gone) => failed("its program ended; nothing was typed"),
        Ok(Answer::Already) => failed("it was typed before; nothing was done"),
        Ok(Answer::Attached) => failed("a client is attached; nothing was done"),
        Ok(Answer::NotOurs) => failed("the pane has lost the pool's mark; nothing was done"),
        Ok(Answer::OtherServer) => failed("another tmux server answers; nothing was done"),
        Err(error) if error.in_doubt() => {
            Err(Refusal::new(ErrorCode::Unavailable, format!("{error}; it may have been done")))
        }
        Err(error) => Err(Refusal::new(ErrorCode::Unavailable, format!("{error}; nothing was done"))),
    }
}
