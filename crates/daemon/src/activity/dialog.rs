//! Dialogs at the start of an agent that the configuration answers. Each is answered once, when it comes up.

use std::sync::Arc;

use pool::Agent;
use pool::activity::Look;
use protocol::event::AgentEvent;
use protocol::{Event, SessionId};
use tmux::{Key, PaneRef};

use super::Subject;
use crate::context::Daemon;
use crate::delivery::glance;

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
            let pressed = daemon.tmux.keys(pane, &keys).await;
            tracing::info!(%session, dialog = name, ?pressed, "a dialog was answered as the configuration says");
        }
        seen => {
            let why = seen.err().unwrap_or_else(|| "it is not shown any more".to_owned());
            tracing::info!(%session, dialog = name, why, "a dialog is left to its user");
        }
    }
}
