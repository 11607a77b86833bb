//! A prompt whose typing was cut off: the daemon stopped, or tmux did not answer. Its pane tells whether it was typed, and
//! types it no more where it was not.

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::queue::Open;
use pool::{delivery, queue};
use protocol::{Event, MessageState, Refusal, SessionId, Timestamp};
use tmux::{Answer, Receipt};
use tokio::time::sleep;

use crate::decide::lock;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::loops::deliver::typed::state::{STANDS, Typed};

/// How often, and how long apart, it is looked whether it stands in the composer: an agent may be drawing it still.
const LOOKS: u32 = 12;

const PAUSE: Duration = Duration::from_millis(500);

/// Why it is in doubt where its pane does not tell.
const UNTOLD: &str = "its typing was cut off, and its terminal does not tell whether it arrived";

/// Where the text is there, and Enter was not pressed.
const NO_ENTER: &str = "typed without Enter, and the terminal may have changed since";

/// Why it is queued again.
const NOT_TYPED: &str = "it was not typed: what was on its way was called off";

/// Asks the pane. Where tmux does not answer it stays as it is, and is asked again.
pub(crate) async fn decide(daemon: &Arc<Daemon>, session: SessionId, typed: &Typed) -> Result<(), Refusal> {
    let told = match typed.token {
        Some(token) => daemon.tmux.revoke(typed.pane, token).await,
        None => Ok((Answer::Done, Receipt::Unknown)),
    };
    let receipt = match told {
        Ok((Answer::Done, receipt)) => receipt,
        // Its incarnation is over, or about to be.
        Ok((answer, _)) => {
            tracing::warn!(%session, ?answer, "a pane tells nothing of what was typed");
            Receipt::Unknown
        }
        Err(error) => {
            tracing::warn!(%session, %error, "tmux does not say whether a prompt was typed");
            sleep(PAUSE).await;
            return Ok(());
        }
    };
    tracing::info!(%session, prompt = typed.id.0, ?receipt, "what became of a prompt");
    match receipt {
        Receipt::Revoked => {
            let again = decided(session, typed, |open, now| queue::withdrawn(open, NOT_TYPED, now));
            daemon.engine.turn(again).await
        }
        Receipt::Typed if typed.enter => without_enter(daemon, session, typed).await,
        Receipt::Typed | Receipt::Entered => {
            daemon.engine.turn(becomes(session, typed, MessageState::Typed, None)).await
        }
        Receipt::Unknown => untold(daemon, session, typed).await,
    }
}

/// The text is there: Enter, where nobody else was at it since.
async fn without_enter(daemon: &Arc<Daemon>, session: SessionId, typed: &Typed) -> Result<(), Refusal> {
    let size = u32::try_from(typed.body.len()).unwrap_or(u32::MAX);
    sleep(delivery::settle(size).saturating_sub(daemon.age(typed.begun).await?)).await;
    for _ in 0..LOOKS {
        let grant = daemon.engine.lock_inside(session, "deliver").await?;
        let others = move |turn: &mut Turn<'_>| {
            turn.volatile.prompts.has_keys(session) || lock::holds_back(turn, session)
        };
        if daemon.engine.turn(others).await? {
            break;
        }
        let ready = stands(daemon, typed).await;
        if let Some(token) = typed.token.filter(|_| ready) {
            let entered = daemon.tmux.enter_after(typed.pane, token).await;
            tracing::info!(%session, prompt = typed.id.0, ?entered, "Enter is pressed behind what was typed");
            return match entered {
                Ok(Answer::Done) => {
                    daemon.engine.turn(becomes(session, typed, MessageState::Typed, None)).await
                }
                Ok(_) => break,
                // The pane is asked again.
                Err(_) => Ok(()),
            };
        }
        drop(grant);
        sleep(PAUSE).await;
    }
    daemon.engine.turn(becomes(session, typed, MessageState::InDoubt, Some(NO_ENTER))).await
}

/// The pane does not tell. A paste is one act of tmux: a text that is seen to stand in the composer was typed, whole and
/// once, and only Enter is missing.
async fn untold(daemon: &Arc<Daemon>, session: SessionId, typed: &Typed) -> Result<(), Refusal> {
    let hooked = typed.agent.confirm == Confirm::Hook && !typed.silent;
    let looks = if hooked && typed.agent.shows_composer() { LOOKS } else { 0 };
    for _ in 0..looks {
        sleep(PAUSE).await;
        let _grant = daemon.engine.lock_inside(session, "deliver").await?;
        if stands(daemon, typed).await {
            return daemon.engine.turn(becomes(session, typed, MessageState::Typed, Some(STANDS))).await;
        }
    }
    daemon.engine.turn(becomes(session, typed, MessageState::InDoubt, Some(UNTOLD))).await
}

/// Whether it waits for Enter, and nobody typed since: where its agent's screen is known, it is to be seen there.
async fn stands(daemon: &Daemon, typed: &Typed) -> bool {
    let Ok(glance) = crate::sense::glance::glanced(daemon, &typed.agent, &typed.run, typed.pane).await else {
        return false;
    };
    let Ok(age) = daemon.age(typed.begun).await else { return false };
    if !typed.agent.shows_composer() {
        return delivery::is_untouched(age, &glance);
    }
    let text = String::from_utf8_lossy(&typed.body);
    delivery::stands(&daemon.loaded().settings, (&text, age), &glance)
}

/// It moves there, unless something decided otherwise meanwhile. What is in doubt is for a person from there on; what the
/// agent says later still counts.
fn becomes(
    session: SessionId,
    typed: &Typed,
    state: MessageState,
    why: Option<&'static str>,
) -> impl FnOnce(&mut Turn<'_>) + Send + use<> {
    decided(session, typed, move |open, now| queue::moved(open, state, why, now))
}

fn decided<F>(session: SessionId, typed: &Typed, event: F) -> impl FnOnce(&mut Turn<'_>) + Send + use<F>
where
    F: FnOnce(&Open<'_>, Timestamp) -> Event + Send,
{
    let id = typed.id;
    move |turn| {
        let open = turn.pool().open_message(session, id).filter(|open| open.state == MessageState::Typing);
        let event = open.map(|open| event(&open, turn.now()));
        turn.emit_all(event);
        turn.wake();
    }
}
