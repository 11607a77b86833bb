//! Aider's notifications (0.86.2). Aider notifies its user before it draws its prompt, and equally of a
//! question in the middle of a turn and of the turn's end. Its screen tells which it was; if it shows
//! neither, Aider went on by itself.

use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use agents::screen::Composer;
use protocol::hook::{Hook, HookEvent, Notice};
use tokio::time::sleep;

use crate::decide::hook::take_in;
use crate::engine::{Daemon, pane_of};
use crate::sense::pane_state::read_screen;

/// Time between two reads of its screen, and their maximum number.
const PAUSE: Duration = Duration::from_millis(100);
const READS_MAX: u32 = 50;

/// Number of reads that have to show the question: one that a setting answers is gone at once.
const QUESTION_READS: u32 = 4;

/// True if a report is such a notification.
pub(crate) fn is_notification(hook: &Hook) -> bool {
    hook.agent == Adapter::Aider.as_str() && matches!(hook.signal, HookEvent::TurnOver { .. })
}

/// Determines in the background what the agent waits for, and applies the result as a report.
pub(crate) fn resolve_in_background(daemon: &Arc<Daemon>, hook: Hook) {
    daemon.world.spawn("notification", resolve(Arc::clone(daemon), hook));
}

async fn resolve(daemon: Arc<Daemon>, hook: Hook) {
    let id = hook.session;
    let record = daemon.engine.turn(move |turn| turn.pool().session(id).cloned()).await;
    let Ok(Some(record)) = record else { return };
    let run = record.incarnation.as_ref().filter(|run| run.tag == hook.tag);
    let Some(pane) = run.and_then(pane_of) else { return };
    let agent = daemon.loaded().settings.agent_of(&record).clone();
    let mut asks = 0;
    for _ in 0..READS_MAX {
        sleep(PAUSE).await;
        let Ok((_, Some(look))) = read_screen(&daemon, &agent, pane).await else { continue };
        let signal = match (look.dialog, look.composer) {
            (Some(dialog), _) => {
                asks += 1;
                HookEvent::Notified { kind: Notice::Question, text: dialog.text }
            }
            (None, Composer::Empty | Composer::Holds(_)) => hook.signal.clone(),
            _ => continue,
        };
        if matches!(signal, HookEvent::TurnOver { .. }) || asks >= QUESTION_READS {
            let (context, hook) = (Arc::clone(&daemon), Hook { signal, ..hook });
            // A stopping engine applies nothing any more.
            drop(daemon.engine.turn(move |turn| drop(take_in(turn, &context, hook))).await);
            return;
        }
    }
}
