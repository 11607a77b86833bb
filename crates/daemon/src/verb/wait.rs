//! `wait`: answers once a condition is true, which may be now.

use std::sync::Arc;
use std::time::Duration;

use pool::clock::Moment;
use protocol::request::{Until, Wait};
use protocol::{
    ActivityState, AskKind, Lifecycle, MessageId, MessageState, PROMPT, Refusal, Reply, Response, Session,
    SessionId, Timestamp,
};

use crate::decide::blocked::will_start;
use crate::decide::queue;
use crate::engine::{Daemon, Turn};
use crate::host::log_writer_end;
use crate::verb::session_view;

pub(super) async fn wait(daemon: &Arc<Daemon>, asked: Wait) -> Reply {
    let session = session_view::resolve(daemon, asked.session).await?;
    let (id, until, context) = (session.id, asked.until, Arc::clone(daemon));
    let for_exit = until.contains(&Until::Exit);
    let mut began = None;
    let check = move |turn: &mut Turn<'_>| {
        let began = *began.get_or_insert_with(|| turn.moment());
        let (hold, fail): (Vec<Reply>, Vec<Reply>) = until
            .iter()
            .filter_map(|until| result(turn, &context, (id, began), until))
            .partition(Reply::is_ok);
        // A condition that is true ends the wait with success, even if another one cannot become true any more.
        hold.into_iter().chain(fail).next()
    };
    let limit = asked.timeout_ms.map(Duration::from_millis);
    let reply = daemon.engine.wait_on(id, limit, check).await?;
    if for_exit && let Ok(Response::Session(shown)) = &reply {
        wait_for_log(daemon, &shown.session).await;
    }
    reply
}

/// Waits until the whole output of a program that has ended is in its logs; a lost log writer delays that only
/// for a short time.
async fn wait_for_log(daemon: &Daemon, session: &Session) {
    let over = session.exit.is_some() && !session.lifecycle.holds_slot();
    let Some(run) = session.incarnation.as_ref().filter(|_| over) else { return };
    let (dir, tag) = (daemon.paths.logs_of(session.id), run.tag);
    let separate = session.spec.separate_stderr.then(|| dir.join(protocol::logs::STDERR));
    for dir in [Some(dir), separate].into_iter().flatten() {
        log_writer_end::wait(&daemon.blocking, &dir, Some(tag)).await;
    }
}

/// Returns the prompt of a session that only a person can move on, with the refusal of a wait for it.
fn left_to_person(turn: &Turn<'_>, session: &Session) -> Option<(MessageId, Refusal)> {
    let (id, why) = pool::prompt::left_to_person(turn.pool(), &turn.volatile.prompts, session)?;
    Some((id, Refusal::failed(why)))
}

/// Returns the refusal of a wait for a queued prompt that will not be typed: its session is over and is not started
/// automatically, or its own text does not fit the terminal.
fn stays_queued(turn: &Turn<'_>, daemon: &Daemon, session: &Session, id: MessageId) -> Option<Refusal> {
    let open = turn.pool().pending_message(session.id, id)?;
    if open.kind != PROMPT || open.state != MessageState::Queued {
        return None;
    }
    let name = session.name.for_people();
    if is_over(turn, daemon, session) {
        let word = pool::session::lifecycle_label(session.lifecycle);
        let how = format!("`poolctl restart {name}`, or `poolctl queue cancel {name} {id}`");
        return Some(Refusal::failed(format!("message {id} waits, and {name} is {word}: {how}")));
    }
    // A program that is starting may take longer lines once it is ready.
    let settings = &daemon.loaded().settings;
    let is_started = pool::prompt::is_ready_overdue(turn.pool(), settings, session, turn.now());
    let why = turn.volatile.prompts.blocked().get(&session.id).filter(|why| why.prompt() == Some(id));
    let why = why.filter(|_| is_started)?;
    Some(Refusal::failed(format!("message {id} is not typed: {why} (`poolctl queue cancel {name} {id}`)")))
}

/// Returns the message once it is final. Refused if only a person can make it so.
fn final_message(turn: &Turn<'_>, daemon: &Daemon, session: &Session, id: MessageId) -> Option<Reply> {
    let left = || left_to_person(turn, session).filter(|(left, _)| *left == id).map(|(_, why)| why);
    let stays = || left().or_else(|| stays_queued(turn, daemon, session, id)).map(Err);
    message_result(turn, session, id, MessageState::is_final).or_else(stays)
}

/// Returns the message once it is accepted or final, or is left to a person.
fn accepted_message(turn: &Turn<'_>, daemon: &Daemon, session: &Session, id: MessageId) -> Option<Reply> {
    // A prompt that will be typed again is not left to a person: it goes on by itself.
    let open = turn.pool().pending_message(session.id, id);
    let is_held = open.is_none_or(|open| pool::queue::waits_for_person(&open));
    let is_left = turn.volatile.prompts.left_to_person(session.id) == Some(id);
    let reached = message_result(turn, session, id, |state| match state {
        MessageState::InDoubt => is_held,
        MessageState::Typed => is_left,
        state => state.is_final() || state == MessageState::Accepted,
    });
    reached.or_else(|| stays_queued(turn, daemon, session, id).map(Err))
}

/// Returns the session once it has no message. Refused if only a person can move its prompt on.
fn empty_queue(turn: &Turn<'_>, daemon: &Daemon, session: &Session) -> Option<Reply> {
    if turn.pool().is_queue_empty(session.id) {
        return Some(session_view::reply(turn, daemon, session.id));
    }
    let next = pool::queue::waiting_prompt(turn.pool(), session.id).map(|next| next.id);
    let stays = || next.and_then(|id| stays_queued(turn, daemon, session, id));
    left_to_person(turn, session).map(|(_, why)| why).or_else(stays).map(Err)
}

/// Returns the message once `reached` is true of its state.
fn message_result(
    turn: &Turn<'_>,
    session: &Session,
    id: MessageId,
    reached: impl Fn(MessageState) -> bool,
) -> Option<Reply> {
    match turn.pool().message_state(session.id, id) {
        None => {
            let why = format!("no message {id} of {}", session.name);
            Some(Err(Refusal::not_found(why)))
        }
        Some(state) => reached(state).then(|| queue::shown_with_steps(turn, id)),
    }
}

/// True if the session runs, or has ended and will not be started automatically.
fn is_settled(turn: &Turn<'_>, daemon: &Daemon, session: &Session) -> bool {
    runs(session) || !runs_or_starts(turn, daemon, session)
}

/// True if the session is live, or drains and its pane is seen.
fn runs(session: &Session) -> bool {
    let is_seen = || session.incarnation.as_ref().is_some_and(|run| run.missing_since.is_none());
    session.lifecycle == Lifecycle::Live || pool::session::drains(session) && is_seen()
}

/// True if a start of the session has failed since then, whether or not it is tried again.
fn has_failed_to_start(turn: &Turn<'_>, session: &Session, began: Moment) -> bool {
    session.lifecycle == Lifecycle::Failed && turn.pool().moment(turn.now(), session.changed_at) >= began
}

/// True if the session is running or ending, or will start by itself.
pub(crate) fn runs_or_starts(turn: &Turn<'_>, daemon: &Daemon, session: &Session) -> bool {
    session.lifecycle.holds_slot() || will_start(turn, &daemon.loaded().settings, session)
}

/// True if the session has settled and its agent, if it is of a known kind, is ready: its start hook
/// reported, or its screen shows the composer or a question.
fn is_ready(turn: &Turn<'_>, daemon: &Daemon, session: &Session) -> bool {
    if !is_settled(turn, daemon, session) {
        return false;
    }
    let known = daemon.loaded().settings.agent_of(session).shows_composer();
    let began = || pool::agent::current_activity(turn.pool(), session).state != ActivityState::Unknown;
    !runs(session) || !known || began()
}

/// True if the agent's activity was observed or reported after the last input was typed. What no hook reports
/// is sampled at intervals.
fn is_observed_since_input(turn: &Turn<'_>, session: &Session) -> bool {
    let Some(run) = &session.incarnation else { return true };
    let Some(typed_at) = turn.volatile.prompts.delivered_at().get(&run.tag) else { return true };
    let activity = pool::agent::current_activity(turn.pool(), session);
    let is_later = |at: Timestamp| turn.pool().is_earlier(turn.now(), *typed_at, at);
    let reported = activity.source.is_report() || is_later(activity.since);
    reported || turn.volatile.agents.observed_at(run.tag).is_some_and(is_later)
}

/// True if the session does not run and nothing will start it, not even a prompt.
fn is_over(turn: &Turn<'_>, daemon: &Daemon, session: &Session) -> bool {
    let is_woken = turn.pool().prompts(session.id).waiting > 0;
    let will_wake = session.lifecycle == Lifecycle::Parked && is_woken && !session.budget.exhausted;
    !session.lifecycle.holds_slot() && !will_wake && is_settled(turn, daemon, session)
}

/// Returns the session once its agent is in this state. Refused if the agent cannot reach it any more.
fn activity_result(
    turn: &Turn<'_>,
    daemon: &Daemon,
    session: &Session,
    state: ActivityState,
) -> Option<Reply> {
    let shown = pool::agent::current_activity(turn.pool(), session);
    if pool::agent::is_in_state(&turn.volatile.agents, &shown, state) {
        // A prompt that is queued, typed or processed is not finished, whatever the last sample shows.
        let prompted = || pool::queue::has_prompt_work(turn.pool(), session.id, turn.now());
        let is_reached = match state {
            ActivityState::Idle => !prompted() && is_observed_since_input(turn, session),
            // While a prompt is pending, an error is that of an earlier turn, unless it holds the prompt back.
            ActivityState::Error => {
                let breaker = turn.pool().breaker(session.id, PROMPT);
                shown.limited_until.is_some_and(|until| until > turn.now())
                    || breaker.is_some_and(|b| b.is_open())
                    || !prompted()
            }
            _ => true,
        };
        if is_reached {
            return Some(session_view::reply(turn, daemon, session.id));
        }
        if let Some((_, why)) = left_to_person(turn, session) {
            return Some(Err(why));
        }
    }
    // An agent whose activity is unknown, or whose prompt is in doubt, reaches no other state by itself.
    let is_unknown = state == ActivityState::Idle && shown.state == ActivityState::Unknown;
    let is_doubt = shown.ask.as_ref().is_some_and(|ask| ask.kind == AskKind::Message);
    let is_stuck = is_unknown || is_doubt && state != ActivityState::Error;
    if let Some((_, why)) = left_to_person(turn, session).filter(|_| is_stuck) {
        return Some(Err(why));
    }
    is_over(turn, daemon, session).then(|| {
        let word = pool::session::lifecycle_label(session.lifecycle);
        Err(Refusal::failed(format!("{} is {word}: its agent does nothing more", session.name)))
    })
}

/// Returns the answer once a condition is true, or cannot become true any more. A start has failed if it failed since
/// the wait began.
fn result(
    turn: &Turn<'_>,
    daemon: &Daemon,
    (id, began): (SessionId, Moment),
    until: &Until,
) -> Option<Reply> {
    let Some(session) = turn.pool().session(id) else {
        let why = format!("{id} was removed during the wait");
        return Some(Err(Refusal::not_found(why)));
    };
    match until {
        Until::Exit => (!session.lifecycle.holds_slot()).then(|| session_view::reply(turn, daemon, id)),
        Until::Activity(state) => activity_result(turn, daemon, session, *state),
        Until::Started | Until::Ready if has_failed_to_start(turn, session, began) => {
            Some(session_view::reply(turn, daemon, id))
        }
        Until::Started => is_settled(turn, daemon, session).then(|| session_view::reply(turn, daemon, id)),
        Until::Ready => is_ready(turn, daemon, session).then(|| session_view::reply(turn, daemon, id)),
        Until::QueueEmpty => empty_queue(turn, daemon, session),
        Until::Message(message) => final_message(turn, daemon, session, *message),
        Until::Accepted(message) => accepted_message(turn, daemon, session, *message),
    }
}
