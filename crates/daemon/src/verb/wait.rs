//! `wait`: looks first, then listens.

use std::sync::Arc;
use std::time::Duration;

use protocol::activity::Source;
use protocol::message::PROMPT;
use protocol::request::{Until, Wait};
use protocol::{
    ActivityState, ErrorCode, Lifecycle, MessageId, MessageState, Refusal, Reply, Response, Session,
    SessionId,
};

use crate::decide::queue;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::verb::shown;

pub(super) async fn wait(daemon: &Arc<Daemon>, asked: Wait) -> Reply {
    let session = shown::find(daemon, asked.session).await?;
    let (id, until, context) = (session.id, asked.until, Arc::clone(daemon));
    let for_exit = until.contains(&Until::Exit);
    let look = move |turn: &mut Turn<'_>| until.iter().find_map(|until| reached(turn, &context, id, until));
    let limit = asked.timeout_ms.map(Duration::from_millis);
    let reply = daemon.engine.wait_on(id, limit, look).await?;
    if for_exit && let Ok(Response::Session(shown)) = &reply {
        logged(daemon, &shown.session).await;
    }
    reply
}

/// Until all that its program wrote is in the log, where it has ended; a writer that is lost is not waited for long.
async fn logged(daemon: &Daemon, session: &Session) {
    let over = session.exit.is_some() && !session.lifecycle.holds_slot();
    let Some(run) = session.incarnation.as_ref().filter(|_| over) else { return };
    let (dir, tag) = (daemon.log_options(session.id).dir, run.tag);
    blocking::limited(Purpose::Logs, move || logs::wait_for_writer(&dir, Some(tag))).await;
}

/// The message, once it is so far.
fn of_message(
    turn: &Turn<'_>,
    session: &Session,
    id: MessageId,
    so: impl Fn(MessageState) -> bool,
) -> Option<Reply> {
    match turn.pool().message_state(session.id, id) {
        None => {
            let why = format!("no message {id} of {}", session.name);
            Some(Err(Refusal::new(ErrorCode::NotFound, why)))
        }
        Some(state) => so(state).then(|| queue::shown_with_steps(turn, id)),
    }
}

/// It runs, or it is over and nobody is about to start it.
fn is_settled(turn: &Turn<'_>, daemon: &Daemon, session: &Session) -> bool {
    let settings = &daemon.loaded().settings;
    let coming = session.lifecycle.holds_slot()
        || session.budget.due_at.is_some()
        || turn.volatile.scheduler.waiting.position(session.id).is_some()
        || turn.volatile.scheduler.is_starting(session.id)
        || pool::scheduler::is_undecided(turn, settings, session)
        || pool::budget::is_to_start(turn.pool(), settings, session, turn.now());
    session.lifecycle == Lifecycle::Live || !coming
}

/// It has settled, and where it runs an agent of a known kind, that has begun: its start hook was heard, or its screen shows
/// where it takes prompts, or what it asks.
fn is_ready(turn: &Turn<'_>, daemon: &Daemon, session: &Session) -> bool {
    if !is_settled(turn, daemon, session) {
        return false;
    }
    let known = daemon.loaded().settings.agent_of(session).shows_composer();
    let began = || pool::activity::shown(turn.pool(), session).state != ActivityState::Unknown;
    session.lifecycle != Lifecycle::Live || !known || began()
}

/// Whether what is known of its agent was seen or said after something was last typed into it. What no hook tells is looked
/// at now and then.
fn is_seen_since(turn: &Turn<'_>, session: &Session) -> bool {
    let Some(run) = &session.incarnation else { return true };
    let Some(worked) = turn.volatile.prompts.delivered_at().get(&run.tag) else { return true };
    let activity = pool::activity::shown(turn.pool(), session);
    let told = matches!(activity.source, Source::Hook | Source::Transcript) || activity.since > *worked;
    told || turn.volatile.agents.looked_at(run.tag).is_some_and(|looked| looked > *worked)
}

/// Its agent does this; refused where it cannot any more.
fn does(turn: &Turn<'_>, daemon: &Daemon, session: &Session, state: ActivityState) -> Option<Reply> {
    let shown = pool::activity::shown(turn.pool(), session);
    if shown.state == state {
        // What is queued, typed or worked on is not over, whatever was seen of its agent last.
        let prompted = || pool::queue::is_prompted(turn.pool(), session.id, turn.now());
        let so = match state {
            ActivityState::Idle => !prompted() && is_seen_since(turn, session),
            // Of an earlier turn, unless it holds back what comes next.
            ActivityState::Error => {
                let breaker = turn.pool().breaker(session.id, PROMPT);
                shown.limited_until.is_some() || breaker.is_some_and(|b| b.is_open()) || !prompted()
            }
            _ => true,
        };
        if so {
            return Some(shown::reply(turn, daemon, session.id));
        }
        if let Some(id) = turn.volatile.prompts.left_to_person(session.id) {
            let how = pool::queue::resolve_command(session.name.as_str(), id);
            let why = format!("message {id} was typed and nothing confirms it; it is left to you: `{how}`");
            return Some(Err(Refusal::new(ErrorCode::Failed, why)));
        }
    }
    let waits = pool::queue::counts(turn.pool(), Some(session.id)).queued > 0;
    let comes = session.lifecycle == Lifecycle::Parked && waits;
    let over = !session.lifecycle.holds_slot() && !comes && is_settled(turn, daemon, session);
    over.then(|| {
        let word = pool::view::lifecycle_word(session.lifecycle);
        Err(Refusal::new(
            ErrorCode::Failed,
            format!("{} is {word}: its agent does nothing more", session.name),
        ))
    })
}

fn reached(turn: &Turn<'_>, daemon: &Daemon, id: SessionId, until: &Until) -> Option<Reply> {
    let Some(session) = turn.pool().session(id) else {
        let gone = format!("{id} was removed while it was waited for");
        return Some(Err(Refusal::new(ErrorCode::NotFound, gone)));
    };
    match until {
        Until::Exit => (!session.lifecycle.holds_slot()).then(|| shown::reply(turn, daemon, id)),
        Until::Activity(state) => does(turn, daemon, session, *state),
        Until::Started => is_settled(turn, daemon, session).then(|| shown::reply(turn, daemon, id)),
        Until::Ready => is_ready(turn, daemon, session).then(|| shown::reply(turn, daemon, id)),
        Until::QueueEmpty => pool::queue::is_empty(turn.pool(), id).then(|| shown::reply(turn, daemon, id)),
        Until::Message(message) => of_message(turn, session, *message, MessageState::is_final),
        Until::Accepted(message) => of_message(turn, session, *message, |state| {
            state.is_final() || matches!(state, MessageState::Accepted | MessageState::InDoubt)
        }),
    }
}
