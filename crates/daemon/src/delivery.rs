//! Types waiting prompts into their panes: level-triggered, after every turn that changed anything.
//! `typing` is on disk before the first byte goes, so that a crash leaves a message in doubt and
//! never has it typed twice.

use std::sync::Arc;
use std::time::Duration;

use pool::queue;
use protocol::{Message, MessageState, Refusal, SessionId};
use tmux::{Answer, PaneRef};
use tokio::time::sleep;

use crate::context::{Daemon, pane_of};
use crate::engine::Turn;
use crate::locking;

/// Pause before Enter, without which programs take it for a part of the paste; and a little more
/// for each byte. Measured with real agents.
const ENTER_PAUSE: Duration = Duration::from_millis(150);
const ENTER_BYTES_PER_SECOND: u32 = 40_000;
/// Pause before the next try, where nothing was typed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// It doubles up to this: somebody may read in copy mode for hours.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Delivers for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.borrow_and_update();
        let Ok(ready) = daemon.engine.turn(claim_sessions).await else { return };
        for session in ready {
            let daemon = Arc::clone(&daemon);
            tokio::spawn(async move {
                if let Err(refusal) = deliver_all(&daemon, session).await {
                    tracing::warn!(%session, %refusal, "delivery stopped");
                }
                daemon.engine.post(move |turn| {
                    turn.rest.view.typing.remove(&session);
                    turn.stir();
                });
            });
        }
        if turns.changed().await.is_err() {
            return;
        }
    }
}

/// Sessions with something to type that nobody types into yet.
fn claim_sessions(turn: &mut Turn<'_>) -> Vec<SessionId> {
    if turn.rest.view.ending {
        return Vec::new();
    }
    let ready: Vec<SessionId> = pool::queue::deliverable(turn.pool(), turn.now()).collect();
    let ready = ready.into_iter().filter(|session| !waits(turn, *session)).collect::<Vec<_>>();
    ready.into_iter().filter(|session| turn.rest.view.typing.insert(*session)).collect()
}

/// It gives way to others, or somebody holds its lock and has sent nothing under it.
fn waits(turn: &Turn<'_>, session: SessionId) -> bool {
    locking::holds_back(turn, session) || gives_way(turn, session)
}

/// It has had its turn, others wait for a slot, and it can be woken again: it gives way between two messages.
fn gives_way(turn: &Turn<'_>, session: SessionId) -> bool {
    turn.rest.line.len() > 0 && turn.rest.view.yields.contains(&session)
}

async fn deliver_all(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    let mut pause = RETRY_PAUSE;
    while let Some(typed) = deliver_one(daemon, session).await? {
        if typed {
            pause = RETRY_PAUSE;
        } else {
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }
    Ok(())
}

/// What is to be typed, where, with `typing` on disk.
struct Claim {
    message: Message,
    body: Vec<u8>,
    pane: PaneRef,
}

/// Types one message. `None`: there is none; else whether it was typed.
async fn deliver_one(daemon: &Arc<Daemon>, session: SessionId) -> Result<Option<bool>, Refusal> {
    let grant = daemon.engine.lock_inside(session, "deliver").await?;
    let token = grant.token();
    let claim = daemon.engine.turn(move |turn| claim(turn, session, token)).await?;
    let Some(claim) = claim else { return Ok(None) };
    crate::crash::point("deliver-typing");
    let (state, reason) = match daemon.tmux.paste(claim.pane, &claim.body).await {
        Ok(Answer::Done) => entered(daemon, &claim).await,
        Ok(answer) => (MessageState::Queued, Some(format!("not typed: {answer:?}"))),
        Err(error) if error.in_doubt() => (MessageState::InDoubt, Some(error.to_string())),
        Err(error) => (MessageState::Queued, Some(format!("not typed: {error}"))),
    };
    crate::crash::point("deliver-typed");
    let id = claim.message.id;
    let tag = claim.pane.tag;
    let settle = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        if state != MessageState::Queued {
            turn.rest.view.worked.insert(tag, now);
        }
        let Some(open) = turn.pool().open_message(session, id) else { return };
        let reason = reason.as_deref();
        let events = match state {
            MessageState::Done => {
                let typed = queue::moved(&open, MessageState::Typed, None, now);
                vec![typed, queue::moved(&open, state, reason, now)]
            }
            // Nothing was typed: it was no attempt.
            MessageState::Queued => vec![queue::withdrawn(&open, reason.unwrap_or_default(), now)],
            _ => vec![queue::moved(&open, state, reason, now)],
        };
        turn.emit_all(events);
    };
    daemon.engine.turn(settle).await?;
    drop(grant);
    Ok(Some(state != MessageState::Queued))
}

fn claim(turn: &mut Turn<'_>, session: SessionId, token: protocol::Token) -> Option<Claim> {
    if turn.rest.view.ending || waits(turn, session) {
        return None;
    }
    let now = turn.now();
    let expired = queue::expired(turn.pool(), now);
    turn.emit_all(expired);
    let id = queue::next(turn.pool(), session, now)?.id;
    let pane = pane_of(turn.pool().session(session)?.incarnation.as_ref()?)?;
    let found = turn.message(id);
    let open = turn.pool().open_message(session, id)?;
    match found {
        Ok(Some((message, body))) => {
            let event = queue::typing(&open, token, now);
            turn.emit(event);
            let spoken = turn.pool().session(session).and_then(pool::admit::spoken_to);
            turn.emit_all(spoken);
            Some(Claim { message, body, pane })
        }
        missing => {
            tracing::error!(id = id.0, ?missing, "a message is not readable");
            let event = queue::moved(&open, MessageState::Dead, Some("its record is not readable"), now);
            turn.emit(event);
            turn.stir();
            None
        }
    }
}

/// It was pasted: Enter, after a pause by length. There is nobody who could confirm it.
async fn entered(daemon: &Daemon, claim: &Claim) -> (MessageState, Option<String>) {
    let done = (MessageState::Done, Some("unconfirmed".to_owned()));
    if !claim.message.enter {
        return done;
    }
    sleep(ENTER_PAUSE + Duration::from_secs(1) * claim.message.size / ENTER_BYTES_PER_SECOND).await;
    match daemon.tmux.enter(claim.pane).await {
        Ok(Answer::Done) => done,
        Ok(answer) => {
            (MessageState::InDoubt, Some(format!("typed, and Enter could not be pressed: {answer:?}")))
        }
        Err(error) => (MessageState::InDoubt, Some(format!("typed, and Enter is in doubt: {error}"))),
    }
}
