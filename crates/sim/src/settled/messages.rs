//! The acknowledged messages at the end of a run: none is lost, each was typed in its order and into its session, and
//! none has ended without a cause.

use std::collections::BTreeMap;

use protocol::{
    ErrorCode, Lifecycle, Message, MessageId, MessageState, PROMPT, Request, Response, SessionId, SessionView,
};
use world::clock::Clock;

use super::starts;
use super::verdict::Verdict;
use crate::actors::worker::TASK;
use crate::client::Client;
use crate::judge;
use crate::land::Land;

/// Reasons for which a prompt that was typed ends without having been worked.
const PROMPT_ENDS: [&str; 3] = ["its agent ended", "interrupted", "the agent's turn failed"];

/// The reason of a prompt that waits until a person empties the composer.
const HOLDS_TEXT: &str = "its composer holds text";

/// Attempts of a message by default (`max_attempts`).
const MAX_ATTEMPTS: u32 = 5;

/// Compares each acknowledged message with what happened in the world.
pub(super) async fn compare(
    land: &Land,
    client: &mut Client,
    sessions: &[SessionView],
) -> Result<(), Verdict> {
    let mut last_typed: BTreeMap<SessionId, (u64, String)> = BTreeMap::new();
    let (now, has_slot) = (land.clock.now(), starts::has_slot(land, sessions));
    for (id, (session, body)) in land.judge.messages() {
        check_typed(land, (session, &body), &mut last_typed)?;
        let Some(message) = shown(land, client, sessions, (id, session, &body)).await? else { continue };
        let view = sessions.iter().find(|found| found.session.id == session);
        let state = message.status.state;
        check_said(land, id, (&body, state)).map_err(Verdict::Broken)?;
        check_end(land, &message).map_err(|why| Verdict::Broken(format!("{body:?} ({id}): {why}")))?;
        if state.is_final() {
            land.judge.count(format!("final:{state:?}"));
            continue;
        }
        let waits = state == MessageState::Queued;
        // The pool's own worker handles messages to any session, other workers only those to running sessions.
        let is_for_host = body.starts_with(TASK);
        let is_waking = land.judge.is_waking(id) && land.climate.clock_steps == 0;
        let is_woken = |found: &SessionView| {
            let wakes = starts::wakes(found, now) || is_waking && starts::is_untouched(found, &message);
            body.starts_with("prompt") && has_slot && wakes
        };
        let is_served = view.is_some_and(|found| {
            let is_live = found.session.lifecycle == Lifecycle::Live;
            found.lock.is_none() && (is_for_host || is_live || is_woken(found))
        });
        if !waits || is_served {
            let why = message.status.reason.clone();
            view.into_iter().for_each(|found| empty_composer(land, found));
            let waits = view.map(|found| (&found.session.lifecycle, &found.waits));
            return Err(Verdict::Pending(format!("{body:?} ({id}) is {state:?}: {why:?}, {waits:?}")));
        }
        land.judge.count("final:waits");
    }
    for (id, session) in land.judge.told_gone() {
        if shown(land, client, sessions, (id, session, "what was sent twice")).await?.is_some() {
            return Err(Verdict::Broken(format!("D2: message {id} was said to be removed, and is there")));
        }
    }
    Ok(())
}

/// True if the subscriber has every event.
pub(super) async fn has_seen_all(land: &Land, client: &mut Client) -> Result<bool, Verdict> {
    match client.call(None, Request::Status).await {
        Some(Ok(Response::Status(status))) => Ok(status.seq <= land.judge.seen()),
        _ => Err(Verdict::Pending("the daemon does not answer".to_owned())),
    }
}

/// Empties the composer that holds up a session's prompts, as a person does when the pool asks for it.
pub(super) fn empty_composer(land: &Land, found: &SessionView) {
    let is_held_up = found.waits.as_ref().is_some_and(|why| why.starts_with(HOLDS_TEXT));
    if let Some(run) = found.session.incarnation.as_ref().filter(|_| is_held_up) {
        land.tmux.empty_composer(run.tag);
    }
}

/// Checks that a prompt was typed after those that were sent before it, and into its own session.
fn check_typed(
    land: &Land,
    (session, body): (SessionId, &str),
    last_typed: &mut BTreeMap<SessionId, (u64, String)>,
) -> Result<(), Verdict> {
    let typed = land.judge.prompt(body);
    if typed.pasted == 1 && !land.judge.is_retried(body) && !body.ends_with(judge::UNORDERED) {
        let before = last_typed.insert(session, (typed.nth, body.to_owned()));
        if let Some((_, later)) = before.filter(|(nth, _)| *nth > typed.nth) {
            return Err(Verdict::Broken(format!("Q4: {body:?} was sent first and typed after {later:?}")));
        }
    }
    if typed.session.is_some_and(|into| into != session) {
        return Err(Verdict::Broken(format!("I3: {body:?} of {session} was typed into {:?}", typed.session)));
    }
    Ok(())
}

/// Reads a message. `None` if it is gone, and may be.
async fn shown(
    land: &Land,
    client: &mut Client,
    sessions: &[SessionView],
    (id, session, body): (MessageId, SessionId, &str),
) -> Result<Option<Message>, Verdict> {
    let lost = || Verdict::Pending("the daemon does not answer".to_owned());
    let reply = client.call(None, Request::ShowMessage(id)).await.ok_or_else(lost)?;
    // Its time was over since the list was read, or unheard of by its subscribers.
    let is_expired =
        reply.is_err() && land.climate.expires() && is_gone(client, session).await.ok_or_else(lost)?;
    let is_not_found = reply.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::NotFound);
    let was_forgotten = is_not_found && is_forgotten(land, client, (id, session)).await?;
    let is_listed = sessions.iter().any(|found| found.session.id == session);
    let is_removed = land.judge.is_purged(id) || land.judge.is_removed(session) && !is_listed;
    let other = match reply {
        Ok(Response::Message(message)) => return Ok(Some(*message)),
        _ if is_expired || was_forgotten || is_removed => return Ok(None),
        other => other,
    };
    let why = format!("D1: {body:?} ({id}) is lost: {other:?}");
    // The subscriber may still have to hear that it was over.
    let is_known = has_seen_all(land, client).await?;
    Err(if is_known { Verdict::Broken(why) } else { Verdict::Pending(why) })
}

/// True if a message may have been forgotten because its session had too many finished ones. The newest of these is
/// left then, unless somebody has removed it or sent it again.
async fn is_forgotten(
    land: &Land,
    client: &mut Client,
    (id, session): (MessageId, SessionId),
) -> Result<bool, Verdict> {
    if land.climate.finished_max > 1 {
        return Ok(false);
    }
    let lost = || Verdict::Pending("the daemon does not answer".to_owned());
    let list = Request::ListMessages(session.into());
    let Ok(Response::Messages(messages)) = client.call(None, list).await.ok_or_else(lost)? else {
        return Ok(false);
    };
    let has_other = messages.iter().any(|message| message.status.state.is_final());
    let is_touched = |id, body: &str| land.judge.is_purged(id) || land.judge.is_retried(body);
    let others = land.judge.messages();
    let mut others = others.iter().filter(|(_, (of, _))| *of == session);
    let was_final = land.judge.was_final(id) || land.judge.has_missed_events();
    Ok(was_final && (has_other || others.any(|(id, (_, body))| is_touched(*id, body))))
}

/// True if a session is not there now. `None` if the connection is lost.
async fn is_gone(client: &mut Client, session: SessionId) -> Option<bool> {
    let shown = client.call(None, Request::Show(session.into())).await?;
    Some(shown.is_err_and(|refusal| refusal.code == ErrorCode::NotFound))
}

/// Checks that a message was worked if it is said to be done, and is said to be done if its worker was told so.
fn check_said(land: &Land, id: MessageId, (body, state): (&str, MessageState)) -> Result<(), String> {
    let typed = land.judge.prompt(body);
    let is_entered = typed.entered > 0 || typed.entered_by_person;
    if body.starts_with("prompt") && state == MessageState::Done && !is_entered {
        return Err(format!("{body:?} ({id}) is said to be done, and was never entered"));
    }
    if land.judge.is_processed(id) && state != MessageState::Done && !land.judge.is_retried(body) {
        return Err(format!("D1: {body:?} ({id}) was processed, and is {state:?}"));
    }
    Ok(())
}

/// Checks that a message did not end without a cause.
fn check_end(land: &Land, message: &Message) -> Result<(), String> {
    let status = &message.status;
    let is_given_up = land.judge.is_given_up(message.id);
    let is_used_up = message.kind != PROMPT && status.attempts >= MAX_ATTEMPTS;
    let reason = status.reason.as_ref().map(ToString::to_string).unwrap_or_default();
    let body = land.judge.message(message.id).map(|(_, body)| body).unwrap_or_default();
    let is_cut_short = message.kind == PROMPT
        && land.judge.prompt(&body).pasted > 0
        && PROMPT_ENDS.iter().any(|end| reason.starts_with(end));
    let has_succeeded =
        || land.climate.clock_steps == 0 && land.judge.has_succeeded(&body, status.changed_at);
    match status.state {
        MessageState::Dead if is_cut_short && has_succeeded() => {
            Err(format!("it is dead ({reason}), and its agent had reported that its turn was over"))
        }
        // Whether it arrived is not known.
        MessageState::Dead if body.ends_with(judge::AT_MOST_ONCE) => Ok(()),
        MessageState::Dead if !is_given_up && !is_used_up && !is_cut_short => {
            Err(format!("it is dead after {} attempts: {:?}", status.attempts, status.reason))
        }
        MessageState::Cancelled if !is_given_up => {
            Err("it is cancelled, and nobody asked for that".to_owned())
        }
        MessageState::Expired if body.ends_with(judge::MORTAL) => Ok(()),
        MessageState::Expired => Err("it is expired, and had no time limit".to_owned()),
        _ => Ok(()),
    }
}
