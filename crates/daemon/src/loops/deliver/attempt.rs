//! One attempt to type the next prompt of a session, under the session's lock.

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::{Agent, queue};
use protocol::{Incarnation, Message, MessageReason, MessageState, Refusal, Session, SessionId, Token};
use tmux::{Answer, PaneRef};
use tokio::time::sleep;

use crate::decide::prompt::typed_text;
use crate::effect::dialog;
use crate::engine::Turn;
use crate::engine::daemon::{Daemon, pane_of};
use crate::loops::deliver::prompt::ClaimedPrompt;
use crate::loops::deliver::{enter, record_gate};
use crate::sense::pane_state::read_pane;

/// Time for an agent to draw keys that were pressed.
const DRAW_TIME: Duration = Duration::from_millis(300);

/// The result of an attempt.
pub(super) enum Attempt {
    /// No prompt may be typed now.
    NothingToType,
    /// The prompt was not typed, and waits for another attempt.
    NotTyped,
    /// The prompt was typed, and followed up.
    Typed,
}

/// Types the next prompt of a session, if the record and the pane allow it.
pub(super) async fn deliver_one(daemon: &Arc<Daemon>, session: SessionId) -> Result<Attempt, Refusal> {
    let grant = daemon.engine.lock_inside(session, "deliver").await?;
    let token = grant.token();
    let context = Arc::clone(daemon);
    let find = move |turn: &mut Turn<'_>| target(turn, &context, session);
    let Some((record, run, pane)) = daemon.engine.turn(find).await? else {
        return Ok(Attempt::NothingToType);
    };
    let agent = daemon.loaded().settings.agent_of(&record).clone();
    wait_for_keys(daemon, session, &agent).await?;
    let observed = read_pane(daemon, &agent, &run, pane).await;
    if let Ok(pane_state) = &observed {
        dialog::clear_usage_limit(daemon, (session, pane), &agent, pane_state).await;
    }
    let settings = &daemon.loaded().settings;
    if let Err(why) = observed.and_then(|state| pool::prompt::pane_gate(settings, &agent, &state)) {
        daemon.engine.post(move |turn| turn.volatile.prompts.block(session, why));
        return Ok(Attempt::NotTyped);
    }
    let context = Arc::clone(daemon);
    let claim = move |turn: &mut Turn<'_>| claim(turn, &context, session, (token, agent));
    let Some(prompt) = daemon.engine.turn(claim).await? else { return Ok(Attempt::NothingToType) };
    crate::crash::point("deliver-typing");
    let why = match daemon.tmux.paste(prompt.pane, token, &prompt.body).await {
        Ok(Answer::Done) => {
            enter::press_enter(daemon, prompt, grant).await?;
            return Ok(Attempt::Typed);
        }
        Err(error) if error.in_doubt() => {
            tracing::warn!(%session, %error, "the pane is asked whether the text was typed");
            drop(grant);
            enter::ask_pane(daemon, session).await?;
            return Ok(Attempt::Typed);
        }
        Ok(Answer::Already) => {
            let tag = prompt.pane.tag;
            daemon.engine.post(move |turn| turn.volatile.prompts.note_newer_receipt(tag));
            record_gate::NEWER_RECEIPT.to_owned()
        }
        Ok(answer) => format!("not typed: {answer:?}"),
        Err(error) => format!("not typed: {error}"),
    };
    enter::record_not_typed(daemon, &prompt, why).await?;
    Ok(Attempt::NotTyped)
}

/// Waits until keys that were pressed a moment ago are drawn on a screen that tells whether a prompt may be typed.
async fn wait_for_keys(daemon: &Daemon, session: SessionId, agent: &Agent) -> Result<(), Refusal> {
    if !agent.shows_composer() && agent.confirm != Confirm::Prompt {
        return Ok(());
    }
    let age = daemon.engine.turn(move |turn| pool::prompt::keys_age(turn, session)).await?;
    sleep(age.map_or(Duration::ZERO, |age| DRAW_TIME.saturating_sub(age))).await;
    Ok(())
}

/// Returns the session with the pane for its next prompt, if the record allows typing.
fn target(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: SessionId,
) -> Option<(Session, Incarnation, PaneRef)> {
    queue::next_prompt(turn.pool(), session, turn.now())?;
    if turn.volatile.is_stopping() || !record_gate::is_open(turn, &daemon.loaded().settings, session) {
        return None;
    }
    let record = turn.pool().session(session)?.clone();
    let run = record.incarnation.clone()?;
    let pane = pane_of(&run)?;
    Some((record, run, pane))
}

/// Records the next prompt as `typing` under a token, if the record still allows it. A prompt whose record is
/// not readable is dead.
fn claim(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: SessionId,
    (token, agent): (Token, Agent),
) -> Option<ClaimedPrompt> {
    if turn.volatile.is_stopping() || !record_gate::is_open(turn, &daemon.loaded().settings, session) {
        return None;
    }
    let now = turn.now();
    let expired = queue::expired(turn.pool(), now);
    turn.emit_all(expired);
    let id = queue::next_prompt(turn.pool(), session, now)?.id;
    let pane = pane_of(turn.pool().session(session)?.incarnation.as_ref()?)?;
    let found = turn.message(id);
    let open = turn.pool().pending_message(session, id)?;
    match found {
        Ok(Some((message, body))) => {
            let message = Message { enter: message.enter || message.suspended_at().is_some(), ..message };
            let body = typed_text(turn, &agent, &message, body);
            let event = queue::begin_typing(&open, token, now);
            turn.emit(event);
            let begins = agent.is_told_its_conversation() || agent.confirm != Confirm::Hook;
            let record = turn.pool().session(session).filter(|_| begins);
            let conversation = record.and_then(pool::session::begin_conversation);
            turn.emit_all(conversation);
            turn.volatile.prompts.begin_paste(session);
            Some(ClaimedPrompt { token, message, body, pane, agent })
        }
        missing => {
            tracing::error!(id = id.0, ?missing, "a message is not readable");
            let event = queue::transition(&open, MessageState::Dead, Some(MessageReason::Unreadable), now);
            turn.emit(event);
            turn.wake();
            None
        }
    }
}
