//! `approve`, and thoughts.

use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use pool::{activity, admit, heard, thought};
use protocol::activity::Ask;
use protocol::event::AgentEvent;
use protocol::hook::Decision;
use protocol::request::Approve;
use protocol::thought::Publish;
use protocol::{Activity, ActivityState, ErrorCode, Event, PaneId, Refusal, Reply, Session, SessionRef};
use tokio::time::timeout;

use crate::decide::asks;
use crate::decide::idempotency::Op;
use crate::effect::dialog;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::verb::shown;

/// Limit for a hook to say that its agent took the decision.
const TAKEN_LIMIT: Duration = Duration::from_secs(5);

/// Answers the request that a session's agent waits on. It is acknowledged, and recorded as answered, once the agent has
/// the answer.
pub(super) async fn approve(daemon: &Arc<Daemon>, op: &Op, asked: Approve) -> Reply {
    let (context, wanted) = (Arc::clone(daemon), asked.clone());
    let choice = daemon.engine.turn(move |turn| dialog::choice(turn, &context, &wanted)).await??;
    if let Some(choice) = choice {
        return choose(daemon, op, choice).await;
    }
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let allow = !asked.deny;
    let decision = Decision { allow, reason: asked.reason.clone(), answers: asked.answers.clone() };
    let decide = move |turn: &mut Turn<'_>| {
        let session = admit::resolve(turn.pool(), &asked.session)?.clone();
        let ask = open_ask(turn, &context, &session, asked.ask)?;
        heard::fits(&ask, &asked, session.name.as_str())?;
        let unheard = || Refusal::new(ErrorCode::Conflict, at_the_terminal(&session));
        let hook = turn.waiting.decisions.take(session.id, ask.id);
        let hook = hook.filter(|hook| !hook.is_closed()).ok_or_else(unheard)?;
        let taken = turn.waiting.decisions.sent(session.id, ask.id);
        operation.begun(turn, session.id);
        take_out(turn, &session, &ask);
        Ok::<_, Refusal>((hook, taken, session, ask))
    };
    let (hook, taken, session, ask) = daemon.engine.turn(decide).await??;
    crate::crash::point("ask-answered");
    let sent = hook.send(decision).is_ok();
    let taken = sent && timeout(TAKEN_LIMIT, taken).await.is_ok_and(|taken| taken.is_ok());
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        turn.waiting.decisions.settle(session.id, ask.id);
        let reply = if taken {
            let by = "approve".to_owned();
            let answered = AgentEvent::AskAnswered { session: session.id, ask: ask.id, allowed: allow, by };
            turn.emit(Event::Agent(answered));
            shown::reply(turn, &context, session.id)
        } else {
            put_back(turn, &session, ask);
            Err(Refusal::new(ErrorCode::Conflict, at_the_terminal(&session)))
        };
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

/// Answers a dialog on the screen of a session's agent.
async fn choose(daemon: &Arc<Daemon>, op: &Op, choice: dialog::Choice) -> Reply {
    let grant = daemon.engine.lock_inside(choice.session, "approve").await?;
    let chosen = dialog::choose(daemon, &choice).await;
    drop(grant);
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = chosen.and_then(|()| {
            dialog::answered(turn, &choice);
            shown::reply(turn, &context, choice.session)
        });
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

/// Takes a request out that is being answered: nobody else is asked.
fn take_out(turn: &mut Turn<'_>, session: &Session, ask: &Ask) {
    let open = asks::open(turn, session.id);
    let left: Vec<Ask> = open.into_iter().filter(|open| open.id != ask.id).collect();
    let since = turn.now();
    asks::asks(turn, session.id, &left, |before| Activity {
        state: ActivityState::Busy,
        since,
        ask: None,
        detail: None,
        ..before
    });
}

/// Puts a request back whose answer may not have arrived: it can be answered at the terminal only.
fn put_back(turn: &mut Turn<'_>, session: &Session, ask: Ask) {
    let mut open = asks::open(turn, session.id);
    open.insert(0, Ask { answerable: false, ..ask });
    asks::asks(turn, session.id, &open, |before| before);
}

/// The request that can be answered from here, if it is the one that is meant.
fn open_ask(turn: &Turn<'_>, daemon: &Daemon, session: &Session, meant: Option<u64>) -> Result<Ask, Refusal> {
    let conflict = |why: String| Err(Refusal::new(ErrorCode::Conflict, why));
    let now = activity::shown(turn.pool(), session);
    let Some(shown) = now.ask.clone().filter(|_| activity::asks(&now)) else {
        return conflict(format!("{} asks for nothing now", session.name));
    };
    let is_meant = |ask: &Ask| meant.is_none_or(|meant| meant == ask.id);
    let mut open = std::iter::once(shown.clone()).chain(asks::open(turn, session.id));
    let Some(ask) = open.find(is_meant) else {
        return conflict(format!("{} does not ask that any more; it asks {}", session.name, shown.id));
    };
    if !ask.answerable {
        let adapter = daemon.loaded().settings.agent_of(session).adapter;
        let hint = if adapter == Adapter::None { "" } else { " (its hook does not wait for it)" };
        return conflict(format!("{}{hint}", at_the_terminal(session)));
    }
    Ok(ask)
}

fn at_the_terminal(session: &Session) -> String {
    let name = &session.name;
    format!(
        "what {name} asks can only be answered at its terminal: poolctl attach {name}, or poolctl keys {name}"
    )
}

/// Publishes a thought.
pub(super) async fn publish(daemon: &Arc<Daemon>, op: &Op, asked: Publish) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let reply = published(turn, &context, &asked);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}

fn published(turn: &mut Turn<'_>, daemon: &Daemon, asked: &Publish) -> Reply {
    let session = meant(turn, &asked.target)?;
    let thought = thought::publish(turn.pool().thought(session.id), asked, turn.now())?;
    if let Some(thought) = thought.filter(|thought| turn.pool().thought(session.id) != Some(thought)) {
        turn.emit(Event::Agent(AgentEvent::ThoughtPublished { session: session.id, thought }));
    }
    shown::reply(turn, daemon, session.id)
}

/// The session that is meant, by its name or its pane.
fn meant(turn: &Turn<'_>, target: &SessionRef) -> Result<Session, Refusal> {
    let (name, pane) =
        in_tmux(&target.0).map_or((None, target.0.as_str()), |(name, pane)| (Some(name), pane));
    let by_pane = pane.parse().ok().and_then(|pane: PaneId| {
        let runs = |session: &&Session| session.lifecycle.holds_slot();
        turn.pool()
            .sessions()
            .filter(runs)
            .find(|s| s.incarnation.as_ref().is_some_and(|run| run.pane == Some(pane)))
    });
    let Some(session) = by_pane else { return admit::resolve(turn.pool(), target).cloned() };
    if let Some(name) = name.filter(|name| *name != session.name.as_str()) {
        let why = format!("the pane {pane} is in {}, and not in {name}", session.name);
        return Err(Refusal::new(ErrorCode::Conflict, why));
    }
    Ok(session.clone())
}

/// The name and the pane of `tmux:NAME:WINDOW.PANE:%3`. The places of windows and panes change, the rest does not.
fn in_tmux(target: &str) -> Option<(&str, &str)> {
    let (name, rest) = target.strip_prefix("tmux:")?.split_once(':')?;
    let (_, pane) = rest.split_once(':')?;
    Some((name, pane))
}
