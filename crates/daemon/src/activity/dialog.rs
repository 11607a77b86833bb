//! Dialogs of agents: those of a start that the configuration answers, once, when they come up; one about the usage limit,
//! where it stands in the way of a prompt; and what a person chooses by `poolctl approve`.

use std::sync::Arc;
use std::time::Duration;

use agents::screen::{self, USAGE_LIMIT};
use pool::activity::{self, Look};
use pool::{Agent, admit};
use protocol::activity::{Ask, AskKind};
use protocol::event::AgentEvent;
use protocol::request::Approve;
use protocol::{ErrorCode, Event, Refusal, SessionId};
use tmux::{Answer as Pressed, Key, PaneRef};
use tokio::time::{Instant, sleep};

use super::Subject;
use crate::context::{Daemon, pane_of};
use crate::delivery::glance;
use crate::engine::Turn;

/// Time for an agent to close a dialog that was answered.
const CLOSED_LIMIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// Keys for a dialog.
pub(super) struct Answer {
    session: SessionId,
    agent: Arc<Agent>,
    pane: PaneRef,
    name: String,
    keys: Vec<Key>,
}

/// The answer to a dialog of the agent's start that has just come up, where there is one.
pub(super) fn wanted(subject: &Subject, look: Option<&Look>, event: &Event) -> Option<Answer> {
    let Event::Agent(AgentEvent::ActivityChanged { activity, turned: true, .. }) = event else { return None };
    let name = started_with(look?)
        .filter(|name| activity.ask.is_some() && activity.detail.as_deref() == Some(*name))?;
    let keys = tmux::keys::parse(subject.agent.dialogs.get(name)?).ok()?;
    let agent = Arc::clone(&subject.agent);
    Some(Answer { session: subject.id, agent, pane: subject.pane?, name: name.to_owned(), keys })
}

/// The dialog of an agent's start that a screen shows.
fn started_with(look: &Look) -> Option<&str> {
    look.dialog.as_ref().filter(|dialog| dialog.is_startup).map(|dialog| dialog.name.as_str())
}

/// Presses the keys, if this dialog is on the screen now.
pub(super) async fn answer(daemon: Arc<Daemon>, answer: Answer) {
    let Answer { session, agent, pane, name, keys } = answer;
    let Ok(_grant) = daemon.engine.lock_inside(session, "answer a dialog").await else { return };
    match glance(&daemon, &agent, pane).await {
        Ok((_, Some(look))) if started_with(&look) == Some(&name) => {
            press(&daemon, (session, pane), &name, &keys).await;
        }
        seen => {
            let why = seen.err().unwrap_or_else(|| "it is not shown any more".to_owned());
            tracing::info!(%session, dialog = name, why, "a dialog is left to its user");
        }
    }
}

async fn press(daemon: &Daemon, (session, pane): (SessionId, PaneRef), name: &str, keys: &[Key]) {
    let pressed = daemon.tmux.keys(pane, keys).await;
    tracing::info!(%session, dialog = name, ?pressed, "a dialog was answered as the configuration says");
}

/// A dialog about the usage limit stands in the way of a prompt: the configuration answers it, or a person is asked.
/// The caller has the session's lock.
pub(crate) async fn in_the_way(
    daemon: &Daemon,
    (session, pane): (SessionId, PaneRef),
    agent: &Agent,
    look: &Look,
) {
    let Some(dialog) = look.dialog.as_ref().filter(|dialog| dialog.name == USAGE_LIMIT) else { return };
    if let Some(keys) = agent.dialogs.get(USAGE_LIMIT).and_then(|keys| tmux::keys::parse(keys).ok()) {
        return press(daemon, (session, pane), &dialog.name, &keys).await;
    }
    let asked = activity::asks_on(look, dialog, AskKind::Dialog);
    daemon.engine.post(move |turn| {
        let Some(record) = turn.pool().session(session) else { return };
        let before = turn.pool().activity_in(session, pane.tag).cloned().unwrap_or_default();
        let after = protocol::Activity { tag: Some(pane.tag), ..asked };
        let event = pool::heard::turned(record, &before, after);
        turn.emit_all(event);
    });
}

/// What a person chose in a dialog.
pub(crate) struct Choice {
    /// In which session.
    pub(crate) session: SessionId,
    agent: Agent,
    pane: PaneRef,
    dialog: String,
    key: Key,
}

/// What a person chose, by its number or its words, where the session shows a dialog now.
///
/// # Errors
/// Conflict, where there is no such choice.
pub(crate) fn choice(turn: &Turn<'_>, daemon: &Daemon, asked: &Approve) -> Result<Option<Choice>, Refusal> {
    let session = admit::resolve(turn.pool(), &asked.session)?;
    let shown = activity::shown(turn.pool(), session);
    let is_meant = |ask: &&Ask| ask.kind == AskKind::Dialog && asked.ask.is_none_or(|meant| meant == ask.id);
    let Some(ask) = shown.ask.as_ref().filter(is_meant) else { return Ok(None) };
    let conflict = |why: String| Err(Refusal::new(ErrorCode::Conflict, why));
    let choices = screen::choices(&ask.text);
    let [said] = asked.answers.as_slice() else {
        return conflict(format!("{} shows a dialog: `poolctl approve {0} --answer N`", session.name));
    };
    let fits = |(number, words): &&(u8, &str)| *said == number.to_string() || said == words;
    let Some((number, _)) = choices.iter().find(fits) else {
        let offered: Vec<String> =
            choices.iter().map(|(number, words)| format!("{number} ({words})")).collect();
        return conflict(format!("it offers {}", offered.join(", ")));
    };
    let run = session.incarnation.as_ref();
    let (Some(pane), Ok(key)) = (run.and_then(pane_of), number.to_string().parse()) else { return Ok(None) };
    let agent = daemon.loaded().settings.agent_of(session).clone();
    Ok(Some(Choice { session: session.id, agent, pane, dialog: shown.detail.unwrap_or_default(), key }))
}

/// Presses the key of a choice, if its dialog is on the screen, and waits until that is closed. The caller has the
/// session's lock.
///
/// # Errors
/// Conflict, where it is not there, or does not close.
pub(crate) async fn choose(daemon: &Daemon, choice: &Choice) -> Result<(), Refusal> {
    let conflict = |why: &str| Err(Refusal::new(ErrorCode::Conflict, why));
    let shows = async || match glance(daemon, &choice.agent, choice.pane).await {
        Ok((_, Some(look))) => look.dialog.is_some_and(|dialog| dialog.name == choice.dialog),
        _ => false,
    };
    if !shows().await {
        return conflict("its dialog is not on its screen any more");
    }
    match daemon.tmux.keys(choice.pane, std::slice::from_ref(&choice.key)).await {
        Ok(Pressed::Done) => {}
        Ok(other) => return conflict(&format!("the key could not be pressed: {other:?}")),
        Err(error) => return conflict(&format!("the key may not have been pressed: {error}")),
    }
    let deadline = Instant::now() + CLOSED_LIMIT;
    while shows().await {
        if Instant::now() >= deadline {
            return conflict("the key was pressed, and its dialog stays: look at its terminal");
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Its dialog was answered: what its agent does next is seen.
pub(crate) fn answered(turn: &mut Turn<'_>, choice: &Choice) {
    let (session, now) = (choice.session, turn.now());
    let Some(before) = turn.pool().activity_in(session, choice.pane.tag).cloned() else { return };
    let Some(ask) = before.ask.as_ref().filter(|ask| ask.kind == AskKind::Dialog) else { return };
    let told = AgentEvent::AskAnswered { session, ask: ask.id, allowed: true, by: "approve".to_owned() };
    turn.emit(Event::Agent(told));
    let after = protocol::Activity {
        state: protocol::ActivityState::Idle,
        since: now,
        ask: None,
        detail: None,
        ..before.clone()
    };
    let event = turn.pool().session(session).and_then(|record| pool::heard::turned(record, &before, after));
    turn.emit_all(event);
}
