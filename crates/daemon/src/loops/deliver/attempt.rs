//! One attempt to type the next prompt of a session, under the session's lock.

use std::sync::Arc;

use agents::Confirm;
use pool::prompt::Blocked;
use pool::{Agent, queue};
use protocol::{
    Incarnation, Message, MessageReason, MessageState, MessageStatus, Refusal, Session, SessionId, Token,
};
use tmux::{Answer, PaneRef};

use crate::decide::prompt::{is_in_conversation, recall_unentered, typed_text};
use crate::decide::worker::expire;
use crate::effect::dialog;
use crate::engine::{Daemon, Turn, pane_of};
use crate::loops::deliver::prompt::ClaimedPrompt;
use crate::loops::deliver::{enter, record_gate};
use crate::sense::pane_state::{collects_lines, read_pane, wait_for_keys};

/// Maximum number of bytes that are added to a text: before it, so that its agent takes it as a prompt, and blanks
/// behind it.
const MARK_MAX: usize = 80;

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
    let Some(Target { record, run, pane, may_have_long_line }) = daemon.engine.turn(find).await? else {
        return Ok(Attempt::NothingToType);
    };
    let agent = daemon.loaded().settings.agent_of(&record).clone();
    wait_for_keys(daemon, session, &agent).await?;
    let observed = read_pane(daemon, &agent, &run, pane).await;
    if let Ok(pane_state) = &observed {
        dialog::clear_usage_limit(daemon, (session, pane), &agent, pane_state).await;
    }
    let rows_before = observed.as_ref().map_or_else(|_| Vec::new(), |pane| pane.rows.clone());
    let settings = &daemon.loaded().settings;
    let mut gate = observed.and_then(|state| pool::prompt::pane_gate(settings, &agent, &state));
    // A long line fits only a terminal that does not collect whole lines; if the terminal does not answer, the prompt
    // waits.
    let mut cuts_lines = None;
    if gate.is_ok() && may_have_long_line {
        cuts_lines = collects_lines(daemon, &run).await;
        gate = cuts_lines.map(|_| ()).ok_or_else(|| Blocked::for_now("its terminal cannot be looked at"));
    }
    if let Err(why) = gate {
        daemon.engine.post(move |turn| turn.volatile.prompts.block(session, why));
        return Ok(Attempt::NotTyped);
    }
    let context = Arc::clone(daemon);
    let to_typing = move |turn: &mut Turn<'_>| {
        record_typing(turn, &context, session, (token, agent, cuts_lines, rows_before))
    };
    let prompt = match daemon.engine.turn(to_typing).await? {
        Claimed::Prompt(prompt) => *prompt,
        Claimed::Blocked => return Ok(Attempt::NotTyped),
        Claimed::Nothing => return Ok(Attempt::NothingToType),
    };
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
        Ok(answer) => format!("not typed: {answer}"),
        Err(error) => format!("not typed: {error}"),
    };
    enter::record_not_typed(daemon, &prompt, why).await?;
    Ok(Attempt::NotTyped)
}

/// A session with a prompt to type.
struct Target {
    record: Session,
    run: Incarnation,
    pane: PaneRef,
    /// True if its prompt may have a line that is longer than [`pool::prompt::LINE_MAX`].
    may_have_long_line: bool,
}

/// Returns the session with the pane for its next prompt, if the record allows typing.
fn target(turn: &mut Turn<'_>, daemon: &Daemon, session: SessionId) -> Option<Target> {
    let size = queue::next_prompt(turn.pool(), session, turn.now())?.size;
    if turn.volatile.is_stopping() || !record_gate::is_open(turn, &daemon.loaded().settings, session) {
        return None;
    }
    let record = turn.pool().session(session)?.clone();
    let run = record.incarnation.clone()?;
    let pane = pane_of(&run)?;
    recall_unentered(turn, session, &run);
    Some(Target { record, run, pane, may_have_long_line: is_long(size) })
}

/// True if a text of this size, in bytes, may have a line that is longer than [`pool::prompt::LINE_MAX`].
fn is_long(size: u32) -> bool {
    usize::try_from(size).is_ok_and(|size| size + MARK_MAX > pool::prompt::LINE_MAX)
}

/// Result of claiming the next prompt of a session.
enum Claimed {
    /// It is recorded as `typing`.
    Prompt(Box<ClaimedPrompt>),
    /// The next prompt does not fit the terminal.
    Blocked,
    Nothing,
}

/// Records the next prompt as `typing` under a token, if the record still allows it. A prompt whose record is
/// not readable is dead.
fn record_typing(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: SessionId,
    (token, agent, cuts_lines, rows_before): (Token, Agent, Option<bool>, Vec<String>),
) -> Claimed {
    if turn.volatile.is_stopping() || !record_gate::is_open(turn, &daemon.loaded().settings, session) {
        return Claimed::Nothing;
    }
    let now = turn.now();
    if expire(turn) {
        return Claimed::Nothing;
    }
    let run = turn.pool().session(session).and_then(|record| record.incarnation.as_ref());
    let (Some(pane), Some(id)) =
        (run.and_then(pane_of), queue::next_prompt(turn.pool(), session, now).map(|next| next.id))
    else {
        return Claimed::Nothing;
    };
    let found = turn.message(id);
    let Some(open) = turn.pool().pending_message(session, id) else { return Claimed::Nothing };
    if cuts_lines.is_none() && is_long(open.size) {
        // Another, longer prompt has become the next one, and the terminal was not checked for long lines.
        return Claimed::Blocked;
    }
    match found {
        Ok(Some((message, _))) if agent.go_on.is_none() && is_in_conversation(turn, &message) => {
            // The agent has the text already, and its `go_on` prompt was taken out of the configuration: nothing is
            // left to type.
            let cut_short =
                message.steps.into_iter().rev().find(|step| step.state == MessageState::Suspended);
            let reason = cut_short.and_then(|step| step.reason);
            let event = queue::transition(&open, MessageState::Dead, reason, now);
            turn.emit(event);
            turn.wake();
            Claimed::Nothing
        }
        Ok(Some((message, body))) => {
            let enter = message.enter || message.suspended_at().is_some();
            let status = MessageStatus { token: Some(token), ..message.status };
            let message = Message { enter, status, ..message };
            let body = typed_text(turn, &agent, &message, body);
            if let Err(why) = pool::prompt::line_gate((id, &body), cuts_lines) {
                turn.volatile.prompts.block(session, why);
                return Claimed::Blocked;
            }
            let event = queue::begin_typing(&open, token, now);
            turn.emit(event);
            let begins = agent.is_told_its_conversation() || agent.confirm != Confirm::Hook;
            let record = turn.pool().session(session).filter(|_| begins);
            let conversation = record.and_then(pool::session::begin_conversation);
            turn.emit_all(conversation);
            turn.volatile.prompts.begin_paste(session);
            Claimed::Prompt(Box::new(ClaimedPrompt { token, message, body, pane, agent, rows_before }))
        }
        missing => {
            tracing::error!(id = id.0, ?missing, "a message is not readable");
            let event = queue::transition(&open, MessageState::Dead, Some(MessageReason::Unreadable), now);
            turn.emit(event);
            turn.wake();
            Claimed::Nothing
        }
    }
}
