//! What a service manager is told: ready, alive, stopping. Nothing where there is none.

use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::time::sleep;

use crate::context::Daemon;

/// How long the next step of a recovery may take, in microseconds.
const EXTENSION_US: u32 = 60_000_000;

/// Recovery is over and the socket answers.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The database is being checked or repaired: the start takes longer than usual.
pub(crate) fn recovering(percent: f64) {
    tell(NotifyState::ExtendTimeoutUsec(EXTENSION_US));
    tell(NotifyState::Status(&format!("recovering the database: {percent} %")));
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
