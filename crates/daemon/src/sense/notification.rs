//! Aider's notifications (0.86.2). It notifies its user before it draws what it waits for, and of a question in the middle of a
//! turn as of the end of one. Its screen tells which it was; where it shows neither, it went on by itself.

use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use agents::screen::Composer;
use protocol::hook::{Hook, HookEvent, Notice};
use tokio::time::sleep;

use crate::engine::context::{Daemon, pane_of};
use crate::sense::glance::glance;

/// Time between two looks at its screen, and how many there are.
const PAUSE: Duration = Duration::from_millis(100);

const LOOKS: u32 = 50;

/// Looks that show the same question before it is believed to wait: one that is answered by a setting is gone at once.
const ASKS_MIN: u32 = 4;

/// Whether a report is such a notification.
pub(crate) fn is_notification(hook: &Hook) -> bool {
    hook.agent == Adapter::Aider.as_str() && matches!(hook.signal, HookEvent::TurnOver { .. })
}

/// Looks in the background what the agent waits for, and takes that in.
pub(crate) fn look_into(daemon: &Arc<Daemon>, hook: Hook) {
    drop(tokio::spawn(look(Arc::clone(daemon), hook)));
}

async fn look(daemon: Arc<Daemon>, hook: Hook) {
    let id = hook.session;
    let record = daemon.engine.turn(move |turn| turn.pool().session(id).cloned()).await;
    let Ok(Some(record)) = record else { return };
    let run = record.incarnation.as_ref().filter(|run| run.tag == hook.tag);
    let Some(pane) = run.and_then(pane_of) else { return };
    let agent = daemon.loaded().settings.agent_of(&record).clone();
    let mut asks = 0;
    for _ in 0..LOOKS {
        sleep(PAUSE).await;
        let Ok((_, Some(look))) = glance(&daemon, &agent, pane).await else { continue };
        let signal = match (look.dialog, look.composer) {
            (Some(dialog), _) => {
                asks += 1;
                HookEvent::Notified { kind: Notice::Question, text: dialog.text }
            }
            (None, Composer::Empty | Composer::Holds(_)) => hook.signal.clone(),
            _ => continue,
        };
        if matches!(signal, HookEvent::TurnOver { .. }) || asks >= ASKS_MIN {
            let (context, hook) = (Arc::clone(&daemon), Hook { signal, ..hook });
            // A stopping engine takes nothing in any more.
            drop(daemon.engine.turn(move |turn| drop(crate::decide::hook::take(turn, &context, hook))).await);
            return;
        }
    }
}
