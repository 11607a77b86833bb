//! Dialogs of agents: those of a start that the configuration answers, once, when they come up; one about the usage limit,
//! where it stands in the way of a prompt; and what a person chooses by `poolctl approve`.

use std::sync::Arc;
use std::time::Duration;

use agents::screen;
use agents::screen::{Dialog, USAGE_LIMIT};
use pool::activity::Look;
use pool::delivery::Glance;
use pool::{Agent, activity, admit, delivery};
use protocol::activity::{Ask, AskKind};
use protocol::event::AgentEvent;
use protocol::request::Approve;
use protocol::{ErrorCode, Event, Refusal, SessionId};
use tmux::{Answer as Pressed, Key, PaneRef};
use tokio::time::{Instant, sleep};

use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::sense::glance::glance;
use crate::sense::subject::Subject;

/// Time for an agent to close a dialog that was answered.
const CLOSED_LIMIT: Duration = Duration::from_secs(3);

const PAUSE: Duration = Duration::from_millis(50);

/// Keys for a dialog.
pub(crate) struct Answer {
    session: SessionId,
    agent: Arc<Agent>,
    pane: PaneRef,
    name: String,
    keys: Vec<Key>,
}

/// The answer to a dialog of the agent's start that has just come up, where there is one.
pub(crate) fn wanted(subject: &Subject, look: Option<&Look>, event: &Event) -> Option<Answer> {
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
pub(crate) async fn answer(daemon: Arc<Daemon>, answer: Answer) {
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

/// Sees to a dialog about the usage limit that alone stands in the way of a prompt: answers it as the configuration says,
/// once, or asks a person. The caller has the session's lock.
pub(crate) async fn in_the_way(
    daemon: &Daemon,
    (session, pane): (SessionId, PaneRef),
    agent: &Agent,
    glance: &Glance,
) {
    let Some(look) = glance.look.as_ref() else { return };
    let Some(dialog) = look.dialog.as_ref().filter(|dialog| dialog.name == USAGE_LIMIT) else { return };
    // Whatever else keeps a prompt from it, somebody at its terminal above all, keeps keys from it as well.
    let without = Glance { look: None, ..glance.clone() };
    if delivery::look(&daemon.loaded().settings, agent, &without).is_err() {
        return;
    }
    if let Some(keys) = agent.dialogs.get(USAGE_LIMIT).and_then(|keys| tmux::keys::parse(keys).ok()) {
        press(daemon, (session, pane), &dialog.name, &keys).await;
        if is_closed(daemon, (agent, pane), dialog).await {
            return;
        }
    }
    let asked = activity::asks_on(look, dialog, AskKind::Dialog);
    daemon.engine.post(move |turn| {
        let current = |run: &protocol::Incarnation| run.tag == pane.tag;
        let record = turn.pool().session(session).filter(|s| s.incarnation.as_ref().is_some_and(current));
        let Some(record) = record else { return };
        let before = turn.pool().activity_in(session, pane.tag).cloned().unwrap_or_default();
        let after = protocol::Activity { tag: Some(pane.tag), ..asked };
        // What its agent said since that look is newer.
        if turn.pool().is_earlier(turn.now(), before.since, after.since) {
            let event = pool::heard::turned(record, &before, after);
            turn.emit_all(event);
        }
    });
}

/// Waits until a dialog is not on the screen any more. False where it stays, or where that cannot be seen.
async fn is_closed(daemon: &Daemon, (agent, pane): (&Agent, PaneRef), dialog: &Dialog) -> bool {
    let deadline = Instant::now() + CLOSED_LIMIT;
    loop {
        let seen = glance(daemon, agent, pane).await;
        let shown = seen.ok().and_then(|(_, look)| look).map(|look| look.dialog);
        if shown.is_some_and(|shown| shown.is_none_or(|shown| !is_same(&shown, dialog))) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(PAUSE).await;
    }
}

/// Compares dialogs by what they offer, whichever of the choices is marked.
fn is_same(one: &Dialog, other: &Dialog) -> bool {
    one.name == other.name && screen::strip_markers(&one.text) == screen::strip_markers(&other.text)
}

/// What a person chose in a dialog.
pub(crate) struct Choice {
    /// In which session.
    pub(crate) session: SessionId,
    agent: Agent,
    pane: PaneRef,
    dialog: Dialog,
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
    let name = shown.detail.clone().unwrap_or_default();
    let dialog = Dialog { name, text: ask.text.clone(), is_startup: false };
    Ok(Some(Choice { session: session.id, agent, pane, dialog, key }))
}

/// Presses the key of a choice, if its dialog is on the screen, and waits until that is closed. The caller has the
/// session's lock.
///
/// # Errors
/// Conflict, where it is not there, or does not close.
pub(crate) async fn choose(daemon: &Daemon, choice: &Choice) -> Result<(), Refusal> {
    let conflict = |why: &str| Err(Refusal::new(ErrorCode::Conflict, why));
    let seen = glance(daemon, &choice.agent, choice.pane).await.ok().and_then(|(_, look)| look?.dialog);
    if !seen.is_some_and(|seen| is_same(&seen, &choice.dialog)) {
        return conflict("its dialog is not on its screen any more: look at what it asks now");
    }
    match daemon.tmux.keys(choice.pane, std::slice::from_ref(&choice.key)).await {
        Ok(Pressed::Done) => {}
        Ok(other) => return conflict(&format!("the key could not be pressed: {other:?}")),
        Err(error) => return conflict(&format!("the key may not have been pressed: {error}")),
    }
    if is_closed(daemon, (&choice.agent, choice.pane), &choice.dialog).await {
        return Ok(());
    }
    conflict("the key was pressed, and its dialog is not seen to close: look at its terminal")
}

/// Records that a dialog was answered. What its agent does next is seen.
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
