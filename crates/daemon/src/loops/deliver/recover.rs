//! Recovery of a prompt whose typing was interrupted: the daemon stopped, or tmux did not answer. Each paste
//! stores its token as a receipt in an option of the pane, in the same command list, guarded by `receipt <
//! token`. Reading the receipt also revokes the token, so that a late duplicate is rejected.

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::prompt::{enter_delay, is_untouched, stands_in_composer};
use pool::queue::{self, PendingMessage};
use protocol::{Event, MessageReason, MessageState, Refusal, SessionId, Timestamp};
use tmux::{Answer, Receipt};
use tokio::time::sleep;

use crate::engine::{Daemon, Turn};
use crate::loops::deliver::prompt::TypedPrompt;
use crate::sense::pane_state::read_pane;
use crate::sense::unfinished_line;

/// Number of looks for the text in the composer, and the time between them: an agent may still be drawing it.
const LOOKS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(500);

/// Reads the receipt of the pane, and settles the prompt by it. If tmux does not answer, the prompt stays
/// `typing` for another attempt.
pub(super) async fn resolve(
    daemon: &Arc<Daemon>,
    session: SessionId,
    prompt: &TypedPrompt,
) -> Result<(), Refusal> {
    let answer = match prompt.token {
        Some(token) => daemon.tmux.revoke(prompt.pane, token).await,
        None => Ok((Answer::Done, Receipt::Unknown)),
    };
    let receipt = match answer {
        Ok((Answer::Done, receipt)) => receipt,
        // The pane does not answer for this incarnation, which has ended or is about to.
        Ok((answer, _)) => {
            tracing::warn!(%session, ?answer, "a pane has no receipt of a prompt");
            Receipt::Unknown
        }
        Err(error) => {
            tracing::warn!(%session, %error, "tmux does not answer whether a prompt was typed");
            sleep(PAUSE).await;
            return Ok(());
        }
    };
    tracing::info!(%session, prompt = prompt.id.0, ?receipt, "the typing of a prompt was interrupted");
    match receipt {
        Receipt::Revoked => {
            let back =
                |open: &PendingMessage<'_>, now| vec![queue::give_back(open, MessageReason::NotTyped, now)];
            daemon.engine.turn(commit(session, prompt, back)).await
        }
        Receipt::Typed if prompt.enter => press_missing_enter(daemon, session, prompt).await,
        Receipt::Typed | Receipt::Entered => daemon.engine.turn(typed(session, prompt, None)).await,
        Receipt::Unknown => search_composer(daemon, session, prompt).await,
    }
}

/// Presses the missing Enter, if the text is unchanged in the terminal and no user has acted on it since.
/// Otherwise the prompt is in doubt.
async fn press_missing_enter(
    daemon: &Arc<Daemon>,
    session: SessionId,
    prompt: &TypedPrompt,
) -> Result<(), Refusal> {
    let size = u32::try_from(prompt.body.len()).unwrap_or(u32::MAX);
    let began_at = prompt.began_at;
    sleep(enter_delay(size).saturating_sub(daemon.age(began_at).await?)).await;
    for _ in 0..LOOKS {
        let grant = daemon.engine.lock_inside(session, "deliver").await?;
        let has_user = move |turn: &mut Turn<'_>| {
            pool::prompt::has_keys_since(turn, session, began_at)
                || pool::lock::holds_back(turn.pool(), turn.volatile, session)
        };
        if daemon.engine.turn(has_user).await? {
            break;
        }
        let waits = waits_for_enter(daemon, prompt).await;
        if let Some(token) = prompt.token.filter(|_| waits) {
            let entered = daemon.tmux.enter_after(prompt.pane, token).await;
            tracing::info!(%session, prompt = prompt.id.0, ?entered, "the missing Enter was pressed");
            return match entered {
                Ok(Answer::Done) => daemon.engine.turn(typed(session, prompt, None)).await,
                Ok(_) => break,
                // The receipt is read again.
                Err(_) => Ok(()),
            };
        }
        drop(grant);
        sleep(PAUSE).await;
    }
    if is_entered(daemon, prompt).await {
        return daemon.engine.turn(typed(session, prompt, None)).await;
    }
    unfinished_line::keep_unentered(daemon, prompt.pane, &prompt.body).await;
    daemon.engine.turn(put_in_doubt(daemon, (session, prompt), MessageReason::NoEnter)).await
}

/// True if the pane's receipt shows that Enter was pressed: the Enter of the interrupted delivery may have come late.
async fn is_entered(daemon: &Daemon, prompt: &TypedPrompt) -> bool {
    let Some(token) = prompt.token else { return false };
    matches!(daemon.tmux.revoke(prompt.pane, token).await, Ok((Answer::Done, Receipt::Entered)))
}

/// Searches the composer for the text, without a receipt. tmux pastes a text in one go, so a text in the
/// composer was typed whole and once. Otherwise the prompt is in doubt.
async fn search_composer(
    daemon: &Arc<Daemon>,
    session: SessionId,
    prompt: &TypedPrompt,
) -> Result<(), Refusal> {
    let hooked = prompt.agent.confirm == Confirm::Hook && !prompt.is_unreported;
    let looks = if hooked && prompt.agent.shows_composer() { LOOKS } else { 0 };
    for _ in 0..looks {
        sleep(PAUSE).await;
        let _grant = daemon.engine.lock_inside(session, "deliver").await?;
        if waits_for_enter(daemon, prompt).await {
            let note = Some(MessageReason::InComposer);
            return daemon.engine.turn(typed(session, prompt, note)).await;
        }
    }
    daemon.engine.turn(put_in_doubt(daemon, (session, prompt), MessageReason::NoReceipt)).await
}

/// True if the text waits for Enter: it is in the composer of an agent whose screen is known, or else the
/// pane is untouched since.
async fn waits_for_enter(daemon: &Daemon, prompt: &TypedPrompt) -> bool {
    let Ok(pane) = read_pane(daemon, &prompt.agent, &prompt.run, prompt.pane).await else { return false };
    let Ok(age) = daemon.age(prompt.began_at).await else { return false };
    if !prompt.agent.shows_composer() {
        return is_untouched(age, &pane);
    }
    let text = String::from_utf8_lossy(&prompt.body);
    stands_in_composer(&daemon.loaded().settings, (&text, age), &pane)
}

/// Returns the work of a turn that records the prompt as typed.
fn typed(
    session: SessionId,
    prompt: &TypedPrompt,
    why: Option<MessageReason>,
) -> impl FnOnce(&mut Turn<'_>) + Send + use<> {
    commit(session, prompt, move |open, now| vec![queue::transition(open, MessageState::Typed, why, now)])
}

/// Returns the work of a turn that puts the prompt in doubt. A later report of the agent still counts.
fn put_in_doubt(
    daemon: &Daemon,
    (session, prompt): (SessionId, &TypedPrompt),
    why: MessageReason,
) -> impl FnOnce(&mut Turn<'_>) + Send + use<> {
    let loaded = daemon.loaded();
    commit(session, prompt, move |open, now| queue::doubt(&loaded.settings.queue, open, &why, now))
}

/// Returns the work of a turn that commits events for the prompt, unless it is not `typing` any more.
fn commit<F>(
    session: SessionId,
    prompt: &TypedPrompt,
    decide: F,
) -> impl FnOnce(&mut Turn<'_>) + Send + use<F>
where
    F: FnOnce(&PendingMessage<'_>, Timestamp) -> Vec<Event> + Send,
{
    let id = prompt.id;
    move |turn| {
        let open = turn.pool().pending_message(session, id).filter(|open| open.state == MessageState::Typing);
        let events = open.map(|open| decide(&open, turn.now()));
        turn.emit_all(events.into_iter().flatten());
        turn.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_missing_enter_is_pressed_unless_a_user_has_the_lock() {
        const TEXT: &str = "half a thought";
        for is_locked in [false, true] {
            let test = TestDaemon::start(TestProcesses::default());
            let running = test.run("a").await;
            let (session, settings) = (running.id, test.daemon.settings());
            let (_, token) = test.begin_typing(session, TEXT).await;
            test.daemon.tmux.paste(running.pane, token, TEXT.as_bytes()).await.unwrap();
            test.show(running.pane, "claude-draft");
            if is_locked {
                test.lock_for_user(session).await;
            }
            let prompt = test.turn(move |turn| TypedPrompt::of(turn, &settings, session)).await.unwrap();
            resolve(&test.daemon, session, &prompt).await.unwrap();
            assert_eq!(test.has_called("enter_after"), !is_locked);
        }
    }
}
