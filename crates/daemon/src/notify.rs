//! What a service manager is told: ready, alive, stopping. Nothing where there is none.

use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::time::sleep;

use crate::context::Daemon;

/// Recovery is over and the socket answers.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// On the way out.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Feeds the watchdog for as long as the engine answers: through the real path, never by a bare timer.
pub(crate) async fn watchdog(daemon: Arc<Daemon>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    while daemon.engine.turn(|_| ()).await.is_ok() {
        tell(NotifyState::Watchdog);
        sleep(period / 3).await;
    }
}

fn tell(state: NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
