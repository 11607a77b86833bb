//! Answers to dialogs of agents: dialogs of an agent's start, once, as configured; a dialog about the usage
//! limit that blocks a prompt; and a person's choice by `poolctl approve`.

use std::sync::Arc;
use std::time::Duration;

use agents::screen::{self, Dialog, USAGE_LIMIT};
use pool::agent::ScreenReading;
use pool::prompt::PaneSnapshot;
use pool::{Agent, agent, prompt, session};
use protocol::request::Approve;
use protocol::{AgentEvent, Ask, AskKind, Event, Refusal, SessionId};
use tmux::{Answer, Key, PaneRef};
use tokio::time::{Instant, sleep};

use crate::engine::{Daemon, Turn, pane_of};
use crate::sense::pane_state::read_screen;
use crate::sense::sample_target::SampleTarget;

/// Maximum time for an agent to close an answered dialog, and the time between two reads of its screen.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// The keys that answer a dialog.
pub(crate) struct DialogAnswer {
    session: SessionId,
    agent: Arc<Agent>,
    pane: PaneRef,
    name: String,
    keys: Vec<Key>,
}

/// Returns the configured answer to a dialog of the agent's start that has just come up.
pub(crate) fn configured_answer(
    target: &SampleTarget,
    look: Option<&ScreenReading>,
    event: &Event,
) -> Option<DialogAnswer> {
    let Event::Agent(AgentEvent::ActivityChanged { activity, turned: true, .. }) = event else { return None };
    let name = startup_dialog(look?)
        .filter(|name| activity.ask.is_some() && activity.detail.as_deref() == Some(*name))?;
    let keys = tmux::keys::parse(target.agent.dialogs.get(name)?).ok()?;
    let agent = Arc::clone(&target.agent);
    Some(DialogAnswer { session: target.id, agent, pane: target.pane?, name: name.to_owned(), keys })
}

/// Returns the name of the startup dialog on a screen.
fn startup_dialog(look: &ScreenReading) -> Option<&str> {
    look.dialog.as_ref().filter(|dialog| dialog.is_startup).map(|dialog| dialog.name.as_str())
}

/// Presses the keys, if the dialog is on the screen now.
pub(crate) async fn answer(daemon: Arc<Daemon>, answer: DialogAnswer) {
    let DialogAnswer { session, agent, pane, name, keys } = answer;
    let Ok(_guard) = daemon.engine.lock_inside(session, "answer a dialog").await else { return };
    match read_screen(&daemon, &agent, pane).await {
        Ok((_, Some(look))) if startup_dialog(&look) == Some(&name) => {
            press(&daemon, (session, pane), &name, &keys).await;
        }
        seen => {
            let why = seen.err().map_or_else(|| "it is no longer shown".to_owned(), |why| why.to_string());
            tracing::info!(%session, dialog = name, why, "a dialog is left to its user");
        }
    }
}

async fn press(daemon: &Daemon, (session, pane): (SessionId, PaneRef), name: &str, keys: &[Key]) {
    let pressed = daemon.tmux.keys(pane, keys).await;
    tracing::info!(%session, dialog = name, ?pressed, "a dialog was answered as the configuration says");
}

/// Handles a dialog about the usage limit if nothing else blocks a prompt: answers it once, as configured, or asks a
/// person. The caller holds the session's lock.
pub(crate) async fn clear_usage_limit(
    daemon: &Daemon,
    (session, pane): (SessionId, PaneRef),
    agent: &Agent,
    glance: &PaneSnapshot,
) {
    let found = prompt::usage_limit_dialog(&daemon.loaded().settings, agent, glance);
    let Some((look, dialog)) = found else { return };
    if let Some(keys) = agent.dialogs.get(USAGE_LIMIT).and_then(|keys| tmux::keys::parse(keys).ok()) {
        press(daemon, (session, pane), &dialog.name, &keys).await;
        if is_closed(daemon, (agent, pane), dialog).await {
            return;
        }
    }
    let asked = agent::dialog_activity(look, dialog, AskKind::Dialog);
    daemon.engine.post(move |turn| {
        let current = |run: &protocol::Incarnation| run.tag == pane.tag;
        let record = turn.pool().session(session).filter(|s| s.incarnation.as_ref().is_some_and(current));
        let Some(record) = record else { return };
        let before = turn.pool().activity_in(session, pane.tag).cloned().unwrap_or_default();
        let after = protocol::Activity { tag: Some(pane.tag), ..asked };
        // The screen counts only if the agent has not reported since it was read.
        if turn.pool().is_earlier(turn.now(), before.since, after.since) {
            let event = pool::agent::activity_changed(record, &before, after);
            turn.emit_all(event);
        }
    });
}

/// Waits until a dialog has left the screen. False if it stays, or the screen cannot be read.
async fn is_closed(daemon: &Daemon, (agent, pane): (&Agent, PaneRef), dialog: &Dialog) -> bool {
    let deadline = Instant::now() + CLOSE_LIMIT;
    loop {
        let seen = read_screen(daemon, agent, pane).await;
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

/// Compares dialogs by their choices, whichever of them is marked.
fn is_same(one: &Dialog, other: &Dialog) -> bool {
    one.name == other.name && screen::strip_markers(&one.text) == screen::strip_markers(&other.text)
}

/// A person's choice in a dialog.
pub(crate) struct DialogChoice {
    pub(crate) session: SessionId,
    agent: Agent,
    pane: PaneRef,
    dialog: Dialog,
    /// The request that the dialog is on record as.
    ask: u64,
    key: Key,
}

/// Returns a person's choice, by its number or its words, if the session shows a dialog.
///
/// # Errors
/// Conflict: there is no such choice.
pub(crate) fn choice(
    turn: &Turn<'_>,
    daemon: &Daemon,
    asked: &Approve,
) -> Result<Option<DialogChoice>, Refusal> {
    let session = session::resolve(turn.pool(), &asked.session)?;
    let shown = agent::current_activity(turn.pool(), session);
    let is_meant = |ask: &&Ask| ask.kind == AskKind::Dialog && asked.ask.is_none_or(|meant| meant == ask.id);
    let Some(ask) = shown.ask.as_ref().filter(is_meant) else { return Ok(None) };
    let conflict = |why: String| Err(Refusal::conflict(why));
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
    Ok(Some(DialogChoice { session: session.id, agent, pane, dialog, ask: ask.id, key }))
}

/// Presses the key of a choice, if its dialog is on the screen, and waits until it closes. The caller holds
/// the session's lock.
///
/// # Errors
/// Conflict: the dialog is not there, or does not close.
pub(crate) async fn choose(daemon: &Daemon, choice: &DialogChoice) -> Result<(), Refusal> {
    let conflict = |why: &str| Err(Refusal::conflict(why));
    let seen = read_screen(daemon, &choice.agent, choice.pane).await.ok().and_then(|(_, look)| look?.dialog);
    check_shown(seen.as_ref(), &choice.dialog)?;
    match daemon.tmux.keys(choice.pane, std::slice::from_ref(&choice.key)).await {
        Ok(Answer::Done) => {}
        Ok(other) => return conflict(&format!("the key could not be pressed: {other:?}")),
        Err(error) => return conflict(&format!("the key may not have been pressed: {error}")),
    }
    if is_closed(daemon, (&choice.agent, choice.pane), &choice.dialog).await {
        return Ok(());
    }
    conflict("the key was pressed, but its dialog stays open: look at its terminal")
}

/// Refuses a choice if the screen does not show its dialog: its key could answer another one.
fn check_shown(seen: Option<&Dialog>, meant: &Dialog) -> Result<(), Refusal> {
    if seen.is_some_and(|seen| is_same(seen, meant)) {
        return Ok(());
    }
    Err(Refusal::conflict("its dialog is no longer on its screen: look at what it asks now"))
}

/// Records that a dialog was answered; the agent counts as idle until it reports, or another dialog is seen.
pub(crate) fn answered(turn: &mut Turn<'_>, choice: &DialogChoice) {
    let (session, now) = (choice.session, turn.now());
    let told = AgentEvent::AskAnswered { session, ask: choice.ask, allowed: true, by: "approve".to_owned() };
    turn.emit(Event::Agent(told));
    let Some(before) = turn.pool().activity_in(session, choice.pane.tag).cloned() else { return };
    if before.ask.as_ref().is_none_or(|ask| ask.id != choice.ask) {
        return;
    }
    let after = protocol::Activity {
        state: protocol::ActivityState::Idle,
        since: now,
        ask: None,
        detail: None,
        ..before.clone()
    };
    let event =
        turn.pool().session(session).and_then(|record| pool::agent::activity_changed(record, &before, after));
    turn.emit_all(event);
}

#[cfg(test)]
mod tests {
    use protocol::ErrorCode;

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    fn dialog(name: &str, text: &str) -> Dialog {
        Dialog { name: name.to_owned(), text: text.to_owned(), is_startup: false }
    }

    #[test]
    fn a_choice_is_pressed_in_its_own_dialog_alone_whichever_of_its_lines_is_marked() {
        let meant = dialog("menu", "Which model?\n❯ 1. Small\n  2. Large");
        for (seen, is_pressed) in [
            (Some(meant.clone()), true),
            (Some(dialog("menu", "Which model?\n  1. Small\n❯ 2. Large")), true),
            (Some(dialog("menu", "Which model?\n❯ 1. Small\n  2. Huge")), false),
            (Some(dialog("permission", &meant.text)), false),
            (Some(dialog("menu", "")), false),
            (None, false),
        ] {
            let checked = check_shown(seen.as_ref(), &meant).map_err(|refusal| refusal.code);
            assert_eq!(checked, if is_pressed { Ok(()) } else { Err(ErrorCode::Conflict) }, "{seen:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn configured_keys_are_pressed_in_their_own_dialog_alone() {
        for (screen, is_pressed) in [("claude-trust", true), ("claude-key", false), ("claude-idle", false)] {
            let test = TestDaemon::start(TestProcesses::default());
            let running = test.run("a").await;
            test.show(running.pane, screen);
            let agent = Arc::new(test.daemon.settings().agents["claude"].clone());
            let (session, pane, keys) = (running.id, running.pane, vec!["Enter".parse().unwrap()]);
            let meant = DialogAnswer { session, agent, pane, name: "trust".to_owned(), keys };
            answer(Arc::clone(&test.daemon), meant).await;
            assert_eq!(test.has_called("keys"), is_pressed, "{screen}");
        }
    }
}
