//! `approve`: answers the request that a session's agent waits on: by its hook, or in the dialog on its
//! screen.

use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use pool::{agent, session};
use protocol::hook::Decision;
use protocol::request::Approve;
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, Event, Refusal, Reply, Response, Session, SessionId,
};
use tokio::time::timeout;

use crate::decide::asks;
use crate::decide::idempotency::ClientOperation;
use crate::effect::dialog;
use crate::engine::{Daemon, Turn};
use crate::verb::session_view;

/// Time for a hook to report that its agent took the decision.
const TAKEN_LIMIT: Duration = Duration::from_secs(5);

/// Acknowledged, and recorded as answered, once the agent has the answer.
pub(super) async fn approve(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Approve) -> Reply {
    let (context, wanted) = (Arc::clone(daemon), asked.clone());
    let choice = daemon.engine.turn(move |turn| dialog::choice(turn, &context, &wanted)).await??;
    if let Some(choice) = choice {
        return answer_dialog(daemon, op, choice).await;
    }
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let allow = !asked.deny;
    let decision = Decision { allow, reason: asked.reason.clone(), answers: asked.answers.clone() };
    let decide = move |turn: &mut Turn<'_>| {
        let session = session::resolve(turn.pool(), &asked.session)?.clone();
        let ask = answerable_ask(turn, &context, &session, asked.ask)?;
        agent::check_answer(&ask, &asked, session.name.as_str())?;
        let no_hook = || Refusal::conflict(only_at_terminal(&session));
        let hook = turn.waiting.decisions.take(session.id, ask.id);
        let hook = hook.filter(|hook| !hook.is_closed()).ok_or_else(no_hook)?;
        let taken = turn.waiting.decisions.sent(session.id, ask.id, allow);
        operation.record_begun(turn, session.id);
        withdraw(turn, session.id, ask.id);
        Ok::<_, Refusal>((hook, taken, session, ask))
    };
    let (hook, mut taken, session, ask) = daemon.engine.turn(decide).await??;
    crate::crash::point("ask-answered");
    let is_sent = hook.send(decision).is_ok();
    if is_sent {
        drop(timeout(TAKEN_LIMIT, &mut taken).await);
    }
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        // This request counts as waiting up to here, so that the decision is kept until it is known whether the agent
        // took it.
        let _waiting = taken;
        let reply = if turn.waiting.decisions.is_sent(session.id, ask.id) {
            Err(not_taken(turn, &session, ask, is_sent))
        } else {
            session_view::reply(turn, &context, session.id)
        };
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

/// Answers the dialog on the screen of a session's agent.
async fn answer_dialog(daemon: &Arc<Daemon>, op: &ClientOperation, choice: dialog::DialogChoice) -> Reply {
    let grant = daemon.engine.lock_inside(choice.session, "approve").await?;
    let (begun, session) = (op.clone(), choice.session);
    // Recorded first, so that a repeat after a crash does not press the key again: it could answer the next dialog.
    daemon.engine.turn(move |turn| begun.record_begun(turn, session)).await?;
    let chosen = dialog::choose(daemon, &choice).await;
    drop(grant);
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = chosen.and_then(|()| {
            dialog::answered(turn, &choice);
            session_view::reply(turn, &context, choice.session)
        });
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

/// Withdraws a request that is being answered, so that it is shown to no other client.
fn withdraw(turn: &mut Turn<'_>, session: SessionId, ask: u64) {
    let open = asks::open_asks(turn, session);
    let left: Vec<Ask> = open.into_iter().filter(|open| open.id != ask).collect();
    let since = turn.now();
    asks::set_open_asks(turn, session, &left, |before| Activity {
        state: ActivityState::Busy,
        since,
        ask: None,
        detail: None,
        ..before
    });
}

/// Returns the refusal of an answer that did not reach the hook (`!is_sent`), or that its agent may not have taken.
fn not_taken(turn: &mut Turn<'_>, session: &Session, ask: Ask, is_sent: bool) -> Refusal {
    if !is_sent {
        turn.waiting.decisions.settle(session.id, ask.id);
    }
    // If the turn is over, the question was answered at the terminal, and is not shown again.
    if is_at_work(turn, session) {
        restore(turn, session, ask);
    }
    if is_sent {
        Refusal::timeout(unconfirmed(session))
    } else {
        Refusal::conflict(only_at_terminal(session))
    }
}

/// True if the agent of the same incarnation is in a turn.
fn is_at_work(turn: &Turn<'_>, session: &Session) -> bool {
    let Some(tag) = session.tag() else { return false };
    let is_same = turn.pool().tagged(tag).is_some_and(|found| found.id == session.id);
    is_same && turn.pool().activity_in(session.id, tag).is_some_and(|now| now.state.is_at_work())
}

/// Restores a request whose answer may not have arrived. It can only be answered at the terminal then.
fn restore(turn: &mut Turn<'_>, session: &Session, ask: Ask) {
    let mut open = asks::open_asks(turn, session.id);
    open.insert(0, Ask { answerable: false, ..ask });
    asks::set_open_asks(turn, session.id, &open, |before| before);
}

/// Returns the open request with the id `wanted`, or the first one without an id.
///
/// # Errors
/// Conflict: there is none, its hook was given an answer, or it can only be answered at the terminal.
fn answerable_ask(
    turn: &Turn<'_>,
    daemon: &Daemon,
    session: &Session,
    wanted: Option<u64>,
) -> Result<Ask, Refusal> {
    let conflict = |why: String| Err(Refusal::conflict(why));
    let now = agent::current_activity(turn.pool(), session);
    let meant = wanted.or_else(|| now.ask.as_ref().map(|ask| ask.id));
    if meant.is_some_and(|ask| turn.waiting.decisions.is_sent(session.id, ask)) {
        return conflict(unconfirmed(session));
    }
    let Some(shown) = now.ask.clone().filter(|_| agent::waits_for_person(&now)) else {
        return conflict(format!("{} asks for nothing now", session.name));
    };
    let is_wanted = |ask: &Ask| wanted.is_none_or(|id| id == ask.id);
    let mut open = std::iter::once(shown.clone()).chain(asks::open_asks(turn, session.id));
    let Some(ask) = open.find(is_wanted) else {
        return conflict(format!("{} does not ask that any more; it asks {}", session.name, shown.id));
    };
    if !ask.answerable {
        let adapter = daemon.loaded().settings.agent_of(session).adapter;
        let hint = if adapter == Adapter::None { "" } else { " (its hook does not wait for it)" };
        return conflict(format!("{}{hint}", only_at_terminal(session)));
    }
    Ok(ask)
}

fn only_at_terminal(session: &Session) -> String {
    let name = &session.name;
    format!(
        "what {name} asks can only be answered at its terminal: `poolctl attach {name}`, or `poolctl keys {name}`"
    )
}

fn unconfirmed(session: &Session) -> String {
    let name = &session.name;
    format!(
        "the hook of {name} was given an answer, and has not confirmed yet that the agent took it: `poolctl show \
         {name}` tells whether it still asks, and then only its terminal takes another (`poolctl attach {name}`)"
    )
}

/// Records that a hook has received its decision and its agent took it. This may come after the client that decided
/// was told that the outcome is unknown.
pub(crate) fn decision_taken(turn: &mut Turn<'_>, session: SessionId, ask: u64) -> Reply {
    if let Some(sent) = turn.waiting.decisions.settle(session, ask) {
        // After a long wait the request was shown again, and is withdrawn now.
        if asks::open_asks(turn, session).iter().any(|open| open.id == ask) {
            withdraw(turn, session, ask);
        }
        let (allowed, by) = (sent.allow, "approve".to_owned());
        turn.emit(Event::Agent(AgentEvent::AskAnswered { session, ask, allowed, by }));
        sent.notify();
    }
    Ok(Response::Done)
}
