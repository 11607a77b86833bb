//! Automatic adoption of foreign tmux sessions, as configured.

use std::sync::Arc;
use std::time::Duration;

use pool::session::AdoptTarget;
use protocol::request::Adopt;
use protocol::{ErrorCode, PaneId, Refusal};
use tokio::time::sleep;

use crate::engine::{Daemon, Turn};
use crate::verb::adopt::{adopt_pane, pane_claim};

/// Pause after an automatic adoption, before the next attempt on the same pane.
const PAUSE: Duration = Duration::from_secs(5);

/// The same for a pane that its user has to free first, of a `pipe-pane` for example.
const CONFLICT_PAUSE: Duration = Duration::from_secs(60);

/// Adopts until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.mark_seen();
        let settings = daemon.settings();
        let claim = move |turn: &mut Turn<'_>| {
            if turn.pool().slots_used() >= settings.max_sessions {
                return Vec::new();
            }
            let (Some(foreign), state) = (turn.volatile.observed.foreign(), turn.volatile.observed.state())
            else {
                return Vec::new();
            };
            let due = pool::observe::panes_to_adopt(&settings.adoption, foreign, state);
            due.into_iter().filter(|pane| turn.volatile.observed.begin_adoption(*pane)).collect()
        };
        let claimed: Result<Vec<PaneId>, Refusal> = daemon.engine.turn(claim).await;
        let Ok(due) = claimed else { return };
        for pane in due {
            daemon.world.spawn("adopt one", adopt_one(Arc::clone(&daemon), pane));
        }
        turns.changed().await;
    }
}

/// Adopts a pane that is claimed.
async fn adopt_one(daemon: Arc<Daemon>, pane: PaneId) {
    let _claim = pane_claim(&daemon, pane);
    let find = move |turn: &mut Turn<'_>| {
        pool::session::adopt_target(turn.pool(), turn.volatile.observed.state(), &pane.to_string())
    };
    let found = daemon.engine.turn(find).await.and_then(|found| found);
    let done = match found {
        Ok(AdoptTarget::Foreign(adoptee)) => {
            let asked = Adopt { target: pane.to_string(), workspace: None, replace_pipe: false };
            adopt_pane(&daemon, None, *adoptee, asked).await.map(drop)
        }
        Ok(AdoptTarget::Ours(_)) => Ok(()),
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = done {
        sleep(pause_after(pane, &refusal)).await;
    }
}

/// Logs why a pane was not adopted. Returns the time until the next attempt.
fn pause_after(pane: PaneId, refusal: &Refusal) -> Duration {
    match refusal.code {
        // The pool is full, or the server does not answer.
        ErrorCode::Refused | ErrorCode::Unavailable => {
            tracing::debug!(%pane, %refusal, "not adopted yet");
            PAUSE
        }
        ErrorCode::Conflict => {
            tracing::info!(%pane, %refusal, "not adopted by itself");
            CONFLICT_PAUSE
        }
        _ => {
            tracing::warn!(%pane, %refusal, "not adopted");
            PAUSE
        }
    }
}
